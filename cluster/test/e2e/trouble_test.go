package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// trouble makes the kinds of testdata/trouble.yaml, which stay as long as the
// cluster.
func trouble(t *testing.T) {
	t.Helper()
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "trouble.yaml"))
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/noise", "populator/imageless", "populator/hunger", "--timeout=30s")
}

// TestTroublesomeWorkers runs workers that no simulated kubelet can play.
func TestTroublesomeWorkers(t *testing.T) {
	trouble(t)
	t.Run("NoisyFailure", func(t *testing.T) {
		t.Parallel()
		ns := space(t)
		create(t, source(groupTest, "Noise", ns, map[string]any{"bytes": 4 << 20, "exitCode": 3}))
		create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Noise", "src"))
		message := reason(t, ns, "claim", v1alpha1.ReasonWorkerFailed)
		p, err := populationOf(t.Context(), ns, "claim")
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Status.Result; r == nil || r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(r.Message, "the tape is torn") {
			t.Errorf("the result is %+v, want exit code 3 and the last line", p.Status.Result)
		}
		note := event(t, ns, "claim", v1alpha1.ReasonWorkerFailed)
		for what, text := range map[string]string{"condition": message, "event": note, "result": p.Status.Result.Message} {
			if len(text) > 4<<10 || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
				t.Errorf("the %s has %d bytes: %.200q", what, len(text), text)
			}
		}
	})
	t.Run("NoisySuccess", func(t *testing.T) {
		t.Parallel()
		ns := space(t)
		create(t, source(groupTest, "Noise", ns, map[string]any{"bytes": 4 << 20, "exitCode": 0}))
		create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Noise", "src"))
		succeeded(t, ns, "claim")
		quiet(t, ns, waitedForNobody)
		pod := reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
		create(t, pod)
		prints(t, pod, "kept\n")
	})
	t.Run("NoImage", func(t *testing.T) {
		t.Parallel()
		ns := space(t)
		create(t, source(groupTest, "Imageless", ns, map[string]any{}))
		create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Imageless", "src"))
		if got := reason(t, ns, "claim", v1alpha1.ReasonWorkerImageFailed); !strings.Contains(got, "no-such-image") {
			t.Errorf("the population says %q, want the image named", got)
		}
		mustKubectl(t, "patch", "populator", "imageless", "--type=merge", "-p", `{"spec":{"worker":{"image":"busybox:latest"}}}`)
		settled(t, ns, "claim")
		pod := reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
		create(t, pod)
		prints(t, pod, "kept\n")
	})
}

// TestOutOfMemory has a worker use more memory than its limit: what killed it is
// told with the limit, it is tried again, and filled when it has to use less.
func TestOutOfMemory(t *testing.T) {
	trouble(t)
	t.Parallel()
	ns := space(t)
	create(t, source(groupTest, "Hunger", ns, map[string]any{"bytes": 64 << 20}))
	create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Hunger", "src"))
	message := reason(t, ns, "claim", v1alpha1.ReasonWorkerFailed)
	if !strings.Contains(message, "used more memory than its limit of 16Mi allows") || !strings.Contains(message, "will be repeated") {
		t.Errorf("the population says %q, want the limit and that it is repeated", message)
	}
	p := &v1alpha1.Population{}
	eventually(t, "the second attempt has failed too", patience, func(ctx context.Context) error {
		var err error
		if p, err = populationOf(ctx, ns, "claim"); err != nil {
			return err
		}
		if p.Status.Phase != v1alpha1.PhaseFailed {
			return fmt.Errorf("attempt %d is %s", p.Spec.Attempt, p.Status.Phase)
		}
		return nil
	})
	if r := p.Status.Result; r == nil || r.ExitCode == nil || *r.ExitCode != 137 || p.Spec.Attempt != 2 {
		t.Errorf("attempt %d ended with %+v, want attempt 2 with exit code 137", p.Spec.Attempt, r)
	}
	mustKubectl(t, "-n", ns, "patch", "hunger", "src", "--type=merge", "-p", `{"spec":{"bytes":0}}`)
	settled(t, ns, "claim")
	pod := reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "kept\n")
}

// TestDrain drains the node that a worker runs on, as an administrator does: it
// goes like any Pod of a controller, and the volume is filled from the start.
func TestDrain(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := slow(t, ns, 6)
	worker, err := runningWorker(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	node := worker.Spec.NodeName
	out, err := kubectl(t.Context(), "drain", node, "--ignore-daemonsets", "--timeout=60s",
		"--pod-selector="+v1alpha1.LabelClaimUID+"="+string(claim.UID))
	mustKubectl(t, "uncordon", node) // other tests need the node
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if p := completed(t, ns, "claim"); p.Spec.Attempt != 2 {
		t.Errorf("attempt %d succeeded, want 2", p.Spec.Attempt)
	}
	clean(t, claim.UID, patience)
	pod := reader(ns, "claim", "runs", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "started\n")
}
