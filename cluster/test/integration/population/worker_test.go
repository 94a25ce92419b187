package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestFailedWorkerIsToldAndAChangeArmsAgain(t *testing.T) {
	s := shared(t)
	p := s.populator(t, map[string]string{
		simulate.AnnotationRuns: "0s", simulate.AnnotationExitCode: "3", simulate.AnnotationMessage: "the tape is torn",
	}, func(p *v1alpha1.Populator) { p.Spec.MaxAttempts = 1 })
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	got := waits(t, claim, v1alpha1.ReasonWorkerFailed, 20*time.Second)
	if got.Status.Phase != v1alpha1.PhaseFailed || got.Status.Result == nil || got.Status.Result.ExitCode == nil ||
		*got.Status.Result.ExitCode != 3 || !strings.Contains(got.Status.Result.Message, "the tape is torn") {
		t.Fatalf("population is %+v", got.Status)
	}
	var kept corev1.PodList
	if err := kube.List(t.Context(), &kept, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelRole}); err != nil || len(kept.Items) != 1 {
		t.Errorf("%d failed workers are kept, want 1 for its log: %v", len(kept.Items), err)
	}

	p.Spec.Worker.Annotations = runs(0)
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, 5*time.Second)
	if got := succeeded(t, claim, 5*time.Second); got.Spec.Attempt != 2 {
		t.Errorf("it took %d attempts, want 2", got.Spec.Attempt)
	}
}

// TestWorkerThatAlwaysFails lets every attempt fail: they are spaced, they end,
// the last worker is kept, neighbours go on, and a changed source begins anew.
func TestWorkerThatAlwaysFails(t *testing.T) {
	s := shared(t)
	annotations := runs(0)
	annotations[simulate.AnnotationExitCode], annotations[simulate.AnnotationMessage] = "3", "no tape in the drive"
	annotations[simulate.AnnotationFailures] = "2"
	s.populator(t, annotations, func(p *v1alpha1.Populator) { p.Spec.MaxAttempts = 2 })
	source := s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	first := waits(t, claim, v1alpha1.ReasonWorkerFailed, 20*time.Second)
	if first.Status.Phase != v1alpha1.PhaseWaiting {
		t.Errorf("after the first of two attempts the population is %s", first.Status.Phase)
	}
	// Neighbours go on.
	other := &scene{namespace: namespace(t), kind: ownKind(t)}
	other.populator(t, runs(0))
	other.source(t)
	neighbour := other.claim("claim", simulate.ClassImmediate)
	create(t, neighbour)
	bound(t, neighbour, soon)
	last := &v1alpha1.Population{}
	eventually(t, 40*time.Second, "the population has failed", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), last); err != nil {
			return err
		}
		if last.Status.Phase != v1alpha1.PhaseFailed {
			return errors.New(describe(ctx, claim))
		}
		return nil
	})
	if r := last.Status.Result; r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(r.Message, "no tape in the drive") || r.Attempt != 2 {
		t.Errorf("the result is %+v", r)
	}
	if between := last.Status.Result.EndedAt.Sub(first.Status.Result.EndedAt.Time); between < 9*time.Second {
		t.Errorf("the attempts ended %v apart, want a back-off of ten seconds between them", between)
	}
	var kept corev1.PodList
	if err := kube.List(t.Context(), &kept, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelRole}); err != nil || len(kept.Items) != 1 {
		t.Errorf("%d failed workers are kept, want the last for its log: %v", len(kept.Items), err)
	}
	if err := unstructured.SetNestedField(source.Object, "Hello, again!", "spec", "fileContents"); err != nil {
		t.Fatal(err)
	}
	if err := kube.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
}

// TestWorkerThatHangs gives up on a worker that outlives its deadline.
func TestWorkerThatHangs(t *testing.T) {
	s := shared(t)
	s.populator(t, nil, func(p *v1alpha1.Populator) { p.Spec.DeadlineSeconds, p.Spec.MaxAttempts = ptr.To[int64](1), 1 })
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	if p := waits(t, claim, v1alpha1.ReasonWorkerTimedOut, 20*time.Second); p.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("the population is %s", p.Status.Phase)
	}
}

// TestWorkerThatSaysTooMuch ends workers with a message that is long and full of
// control characters: what is told is bounded and clean, and the end counts.
func TestWorkerThatSaysTooMuch(t *testing.T) {
	garbage := strings.Repeat("\x1b[31mred\a\u202e ", 1<<13) + "the end"
	s := shared(t)
	annotations := runs(0)
	annotations[simulate.AnnotationExitCode], annotations[simulate.AnnotationMessage] = "1", garbage
	s.populator(t, annotations, func(p *v1alpha1.Populator) { p.Spec.MaxAttempts = 1 })
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonWorkerFailed, 20*time.Second)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	for what, text := range map[string]string{"condition": c.Message, "result": p.Status.Result.Message} {
		if len(text) > 4<<10 || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' || r == '\u202e' }) {
			t.Errorf("the %s has %d bytes: %q…", what, len(text), text[:min(len(text), 200)])
		}
	}
	var told corev1.EventList
	if err := kube.List(t.Context(), &told, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range told.Items {
		if len(e.Message) > 1<<10 || strings.ContainsRune(e.Message, '\x1b') {
			t.Errorf("event %s has a message of %d bytes: %q", e.Reason, len(e.Message), e.Message)
		}
	}
}

// worker waits until a worker of the scene runs and returns it.
func (s *scene) worker(t *testing.T) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	eventually(t, 20*time.Second, "a worker runs", func(ctx context.Context) error {
		err := kube.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleWorker})
		if err != nil {
			return err
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d run", len(pods.Items))
		}
		return nil
	})
	return &pods.Items[0]
}

// TestWorkerIsDrivenAway by a drained node, or by one that has no room left:
// the next attempt has a volume of its own.
func TestWorkerIsDrivenAway(t *testing.T) {
	t.Parallel() // like its cases, when no manager of another test runs
	cases := map[string]struct {
		reason string
		away   func(*testing.T, *corev1.Pod) error
	}{
		"Drained": {
			reason: "kubectl drain evicts it",
			away: func(t *testing.T, w *corev1.Pod) error {
				return kube.SubResource("eviction").Create(t.Context(), w, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: w.Name}})
			},
		},
		"Evicted": {
			reason: "a node under pressure ends it and leaves its object",
			away: func(t *testing.T, w *corev1.Pod) error {
				return kube.Status().Patch(t.Context(), w, client.RawPatch(types.MergePatchType,
					[]byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}}`)))
			},
		},
		"Deleted": {
			reason: "somebody deletes it by force",
			away: func(t *testing.T, w *corev1.Pod) error {
				return kube.Delete(t.Context(), w, client.GracePeriodSeconds(0))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := shared(t)
			p := s.populator(t, runs(time.Hour))
			s.source(t)
			claim := s.claim("claim", simulate.ClassImmediate)
			create(t, claim)
			worker := s.worker(t)
			prime := worker.Spec.Volumes[slices.IndexFunc(worker.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })].PersistentVolumeClaim.ClaimName
			// The next one is quick. The one that runs is not touched by that.
			p.Spec.Worker.Annotations = runs(0)
			if err := kube.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if err := tc.away(t, worker); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			volume := bound(t, claim, 40*time.Second)
			if got := succeeded(t, claim, soon); got.Spec.Attempt != 2 {
				t.Errorf("%s: attempt %d succeeded, want 2", tc.reason, got.Spec.Attempt)
			}
			if strings.Contains(volume.Name, prime) {
				t.Errorf("%s: the volume of the first attempt was handed over", tc.reason)
			}
			clean(t, s.namespace, 5*time.Second)
		})
	}
}

// TestPopulatorDeletedInFlight deletes the Populator while a worker runs: the
// claim says so, and a Populator that comes later fills it.
func TestPopulatorDeletedInFlight(t *testing.T) {
	s := shared(t)
	p := s.populator(t, runs(time.Second))
	s.source(t)
	running, waiting := s.claim("running", simulate.ClassImmediate), s.claim("waiting", simulate.ClassWait)
	create(t, running)
	create(t, waiting)
	s.worker(t)
	waits(t, waiting, v1alpha1.ReasonWaitingForConsumer, soon)
	gone(t, p)
	waits(t, waiting, v1alpha1.ReasonUnrecognizedKind, soon)
	s.populator(t, runs(0))
	create(t, consumer(s.namespace, waiting.Name))
	for _, claim := range []*corev1.PersistentVolumeClaim{running, waiting} {
		bound(t, claim, 30*time.Second)
	}
	clean(t, s.namespace, 10*time.Second)
}

// TestWorkerThatFitsNowhere has a worker that no node takes: the scheduler's
// words are told, and a Populator that is changed begins anew.
func TestWorkerThatFitsNowhere(t *testing.T) {
	s := shared(t)
	p := s.populator(t, runs(0), func(p *v1alpha1.Populator) {
		p.Spec.Worker.NodeSelector = map[string]string{"test.example/no-such-node": "true"}
	})
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	got := waits(t, claim, v1alpha1.ReasonWorkerUnschedulable, 90*time.Second)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "node affinity/selector") {
		t.Errorf("the message is %q, want the scheduler's words in it", c.Message)
	}
	p.Spec.Worker.NodeSelector = nil
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, 5*time.Second)
}
