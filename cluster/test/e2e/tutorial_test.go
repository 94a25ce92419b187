package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestTutorial is the volume populator tutorial, file by file and command by
// command.
func TestTutorial(t *testing.T) {
	t.Parallel()
	ns := space(t)
	for _, file := range []string{"hello-crd.yaml", "hello-populator.yaml"} {
		mustKubectl(t, "apply", "-f", example("hello", file))
	}
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/hello", "--timeout=30s")
	for _, file := range []string{"example-hello.yaml", "example-pvc.yaml", "example-job.yaml"} {
		out := mustKubectl(t, "-n", ns, "apply", "-f", example("hello", file))
		if strings.Contains(out, "Warning") {
			t.Errorf("kubectl apply warns: %s", out)
		}
	}
	mustKubectl(t, "-n", ns, "wait", "--for=condition=Complete", "job/example-job", "--timeout=90s")
	if got := mustKubectl(t, "-n", ns, "logs", "job/example-job"); got != "Hello, world!\n" {
		t.Errorf("kubectl logs job/example-job = %q, want %q", got, "Hello, world!\n")
	}
	claim := succeeded(t, ns, "example-pvc")
	quiet(t, ns, waitedForConsumer)
	if got := mustKubectl(t, "-n", ns, "get", "population", "example-pvc"); !strings.Contains(got, "Succeeded") {
		t.Errorf("kubectl get population says\n%s", got)
	}
	p, err := populationOf(t.Context(), ns, "example-pvc")
	if err != nil {
		t.Fatal(err)
	}
	if src := p.Status.Source; src == nil || src.Kind != "Hello" || src.Name != "example-hello" || src.UID == "" {
		t.Errorf("the population's source is %+v", src)
	}
	if p.Spec.ClaimUID != claim.UID || p.Spec.Attempt != 1 {
		t.Errorf("the population is of claim %s, attempt %d; want %s, 1", p.Spec.ClaimUID, p.Spec.Attempt, claim.UID)
	}
}

// TestExamples applies the other examples as their READMEs say.
func TestExamples(t *testing.T) {
	cases := map[string]struct {
		reason                    string
		folder, populator, kinds  string
		claim, job, wantFirstLine string
	}{
		"Files": {
			reason: "a template's files arrive as they were rendered",
			folder: "files", kinds: "profiles.yaml", populator: "profile", claim: "home", job: "read-home",
			wantFirstLine: "Welcome, Ada!\nThis is the volume NAMESPACE/home.\nshell=/bin/sh\n",
		},
		"Block": {
			reason: "a device begins with its file",
			folder: "block", kinds: "stamps.yaml", populator: "stamp", claim: "disk", job: "read-disk",
			wantFirstLine: "Stamped by Sluice\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			mustKubectl(t, "apply", "-f", example(tc.folder, tc.kinds))
			mustKubectl(t, "wait", "--for=condition=Accepted", "populator/"+tc.populator, "--timeout=30s")
			mustKubectl(t, "-n", ns, "apply", "-f", example(tc.folder, "claim.yaml"))
			mustKubectl(t, "-n", ns, "wait", "--for=condition=Complete", "job/"+tc.job, "--timeout=90s")
			want := strings.ReplaceAll(tc.wantFirstLine, "NAMESPACE", ns)
			if got := mustKubectl(t, "-n", ns, "logs", "job/"+tc.job); got != want {
				t.Errorf("%s: the job printed %q, want %q", tc.reason, got, want)
			}
			succeeded(t, ns, tc.claim)
			quiet(t, ns, waitedForConsumer)
		})
	}
}

// TestBindingModes fills every kind of volume under every binding mode.
func TestBindingModes(t *testing.T) {
	mustKubectl(t, "apply", "-f", example("block", "stamps.yaml"))
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/stamp", "--timeout=30s")
	cases := map[string]struct {
		reason string
		class  string
		mode   corev1.PersistentVolumeMode
		// consumer says when the Pod that reads the volume is made.
		consumer string
	}{
		"ImmediateFilesystem": {reason: "the volume is full before any Pod asks", class: immediate, mode: corev1.PersistentVolumeFilesystem, consumer: "after"},
		"ImmediateBlock":      {reason: "a device as well", class: immediate, mode: corev1.PersistentVolumeBlock, consumer: "after"},
		"WaitingFilesystem":   {reason: "a Pod that waits gets the volume where it can run", class: waiting, mode: corev1.PersistentVolumeFilesystem, consumer: "before"},
		"WaitingBlock":        {reason: "a device as well", class: waiting, mode: corev1.PersistentVolumeBlock, consumer: "before"},
		"NoConsumer":          {reason: "without a Pod nothing is provisioned, and the claim says why", class: waiting, mode: corev1.PersistentVolumeFilesystem, consumer: "late"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			want := "filled\n"
			claim := claimFor(ns, "claim", tc.class, tc.mode, groupHello, "Hello", "src")
			if tc.mode == corev1.PersistentVolumeBlock {
				claim.Spec.DataSourceRef.APIGroup, claim.Spec.DataSourceRef.Kind = new(groupExamples), "Stamp"
				create(t, source(groupExamples, "Stamp", ns, map[string]any{"text": "filled"}))
			} else {
				create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "filled"}))
			}
			create(t, claim)
			pod := reader(ns, "claim", "file", tc.mode)
			limit := waitedForConsumer
			if tc.class == immediate {
				limit = waitedForNobody
			}
			switch tc.consumer {
			case "before":
				create(t, pod)
			case "late":
				reason(t, ns, "claim", v1alpha1.ReasonWaitingForConsumer)
				if found, err := temporaries(t.Context(), claim.UID); err != nil || len(found) > 0 {
					t.Errorf("%s: temporaries %v (%v), want none", tc.reason, found, err)
				}
				create(t, pod)
			case "after":
				succeeded(t, ns, "claim")
				create(t, pod)
			}
			prints(t, pod, want)
			succeeded(t, ns, "claim")
			quiet(t, ns, limit)
		})
	}
}

// TestConsumerStartsOnce shows that the tutorial's Job never ran on a volume that was not
// full: it has one Pod, which succeeded.
func TestConsumerStartsOnce(t *testing.T) {
	t.Parallel()
	ns := space(t)
	mustKubectl(t, "-n", ns, "apply", "-f", example("hello", "example-job.yaml"))
	mustKubectl(t, "-n", ns, "apply", "-f", example("hello", "example-pvc.yaml"))
	reason(t, ns, "example-pvc", v1alpha1.ReasonSourceNotFound)
	mustKubectl(t, "-n", ns, "apply", "-f", example("hello", "example-hello.yaml"))
	eventually(t, "job completes", patience, func(ctx context.Context) error {
		job, err := get(ctx, ns, "example-job", &batchv1.Job{})
		if err != nil {
			return err
		}
		if job.Status.Succeeded != 1 || job.Status.Failed != 0 {
			status, _ := json.Marshal(job.Status) // for the message alone
			return fmt.Errorf("it is %s", status)
		}
		return nil
	})
	succeeded(t, ns, "example-pvc")
	if got := event(t, ns, "example-pvc", v1alpha1.ReasonSourceNotFound); !strings.Contains(got, "example-hello") {
		t.Errorf("event %s does not name the source: %q", v1alpha1.ReasonSourceNotFound, got)
	}
}
