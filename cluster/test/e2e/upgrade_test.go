package e2e

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
	"github.com/sluice-dev/sluice/cluster/images"
)

// firstChart is the commit at which the chart first did what the tutorial needs.
// Installations of it are to be upgraded without anybody noticing.
const firstChart = "fd95d97d884c0bba380208b8cf0e2b824d332909"

// earlier returns the release as it was at a commit, its manager built from the
// sources of that commit. It skips the test where the repository has no history.
func earlier(t *testing.T, commit string) helm.Release {
	t.Helper()
	ctx := t.Context()
	if err := exec.CommandContext(ctx, "git", "-C", repository, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		// A shallow clone or an archive of the sources has no earlier chart to upgrade from; a full clone, as CI makes, has.
		t.Skipf("needs the history of the repository, of which commit %s is a part: %v", commit, err)
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree.tar")
	for _, args := range [][]string{
		{"git", "-C", repository, "archive", "--output", tree, commit, "go.mod", "go.sum", "api", "cmd", "internal", "charts"},
		{"tar", "-xf", tree, "-C", dir},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // arguments of the test
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	cfg, err := config.Config{Name: cluster.Name}.WithDefaults(nil)
	if err != nil {
		t.Fatal(err)
	}
	build := func(root string) (digest string) {
		err := images.Build(ctx, images.Options{
			Root: root, Dir: cfg.ImagesDir, Only: []string{images.Manager},
			Report: func(r images.Result) { digest = r.Digest },
		})
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	digest := build(dir)
	build(cfg.Repository) // the tag is today's again, the older one has its digest
	r := sluice
	r.Chart = filepath.Join(dir, "charts", "sluice")
	image, ok := sluice.Values["image"].(map[string]any)
	if !ok {
		t.Fatalf("the release has no image: %v", sluice.Values)
	}
	image = maps.Clone(image)
	image["digest"] = digest
	r.Values = map[string]any{"image": image}
	return r
}

// TestUpgrade upgrades an installation of the first chart while a population
// runs and others wait: the worker is taken over, what waited is filled, what
// is settled is left alone and the certificates stay.
func TestUpgrade(t *testing.T) {
	ns := space(t)
	before := earlier(t, firstChart)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if _, err := sluice.Ensure(ctx); err != nil {
			t.Errorf("install again: %v", err)
		}
	})
	if err := sluice.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	authorityBefore, err := authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slow(t, ns, 20)
	for name, class := range map[string]string{"settled": immediate, "no-consumer": waiting, "no-source": immediate} {
		claim := claimFor(ns, name, class, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
		if name == "no-source" {
			claim.Spec.DataSourceRef.Name = "other"
		}
		create(t, claim)
	}
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "kept"}))
	settledBefore := completed(t, ns, "settled")
	reason(t, ns, "no-consumer", v1alpha1.ReasonWaitingForConsumer)
	reason(t, ns, "no-source", v1alpha1.ReasonSourceNotFound)

	image, _ := sluice.Values["image"].(map[string]any)
	today, _ := image["digest"].(string)
	if _, err := sluice.Upgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := authority(t.Context()); err != nil || after != authorityBefore {
		t.Errorf("the upgrade changed the webhooks' certificate authority (%v)", err)
	}
	if p := completed(t, ns, "claim"); p.Spec.Attempt != 1 {
		t.Errorf("attempt %d succeeded, want the worker that ran to be taken over", p.Spec.Attempt)
	}
	settled(t, ns, "claim")
	other := source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "late"})
	other.SetName("other")
	create(t, other)
	settled(t, ns, "no-source")
	pod := reader(ns, "no-consumer", "file", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "kept\n")
	settled(t, ns, "no-consumer")
	if p := completed(t, ns, "settled"); p.ResourceVersion != settledBefore.ResourceVersion {
		t.Error("the upgrade wrote to the record of a settled claim")
	}
	eventually(t, "the Pods are those of the new release", patience, func(ctx context.Context) error {
		pods, err := managerPods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if got := p.Spec.Containers[0].Image; !strings.HasSuffix(got, today) {
				return fmt.Errorf("pod %q runs %q, want %q", p.Name, got, today)
			}
		}
		return nil
	})
}
