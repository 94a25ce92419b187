package populate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// TestWaitsAndFailuresNameWhatToDo shows what a user reads of a claim that does
// not go on: one line that names the object concerned, and what comes next or is
// to be done. It is told once: the event has the words of the condition.
func TestWaitsAndFailuresNameWhatToDo(t *testing.T) {
	source := func(s populate.Source) func(*populate.Observed) {
		return func(o *populate.Observed) { o.Source = s }
	}
	cases := map[string]struct {
		reason string
		o      []func(*populate.Observed)
		object string
		action string
	}{
		"NoPopulator": {
			reason: v1alpha1.ReasonUnrecognizedKind, o: []func(*populate.Observed){func(o *populate.Observed) { o.Populator = nil }},
			object: "Hello.hello.k8s.io", action: "create a Populator",
		},
		"Elsewhere": {
			reason: v1alpha1.ReasonUnrecognizedKind, o: []func(*populate.Observed){func(o *populate.Observed) { o.Populator, o.RegisteredElsewhere = nil, true }},
			object: "Hello.hello.k8s.io", action: "set replacesExisting",
		},
		"Selector": {
			reason: v1alpha1.ReasonUnsupportedClaim, o: []func(*populate.Observed){func(o *populate.Observed) { o.Claim.Spec.Selector = &metav1.LabelSelector{} }},
			object: "The claim", action: "create it anew",
		},
		"NoClass": {
			reason: v1alpha1.ReasonClassNotFound, o: []func(*populate.Observed){func(o *populate.Observed) { o.Claim.Spec.StorageClassName = nil }},
			object: "default class", action: "mark one as default",
		},
		"ClassGone": {
			reason: v1alpha1.ReasonClassNotFound, o: []func(*populate.Observed){func(o *populate.Observed) {
				o.Claim.Spec.StorageClassName, o.Class = ptr.To("fast"), nil
			}},
			object: `StorageClass "fast"`, action: "create it",
		},
		"ClassNamesClaim": {
			reason: v1alpha1.ReasonUnsupportedClass, o: []func(*populate.Observed){func(o *populate.Observed) {
				o.Class.Parameters = map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}"}
			}},
			object: `"csi.storage.k8s.io/node-stage-secret-name"`, action: "another class",
		},
		"NotGranted": {
			reason: v1alpha1.ReasonNotGranted, o: []func(*populate.Observed){source(populate.Source{State: populate.SourceFound, Namespace: "library"})},
			object: `"library"`, action: "have one created there",
		},
		"SourceNotFound": {
			reason: v1alpha1.ReasonSourceNotFound, o: []func(*populate.Observed){source(populate.Source{State: populate.SourceNotFound, Namespace: "tenant"})},
			object: `"example"`, action: `create it in namespace "tenant"`,
		},
		"SourceInvalid": {
			reason: v1alpha1.ReasonInvalidSource,
			o: []func(*populate.Observed){source(populate.Source{
				State: populate.SourceFound, Namespace: "tenant", Invalid: "fileName must be plain", InvalidReason: v1alpha1.ReasonInvalidSource,
			})},
			object: `"example"`, action: "correct it: fileName must be plain",
		},
		"SourceNotReadable": {
			reason: v1alpha1.ReasonSourceKindNotReadable,
			o:      []func(*populate.Observed){source(populate.Source{State: populate.SourceKindNotReadable, Namespace: "tenant", Detail: "forbidden"})},
			object: `Populator "hello"`, action: "install",
		},
		"Consumer": {
			reason: v1alpha1.ReasonWaitingForConsumer, o: []func(*populate.Observed){waitsForConsumer},
			object: "StorageClass", action: "annotate the claim",
		},
		"Provisioner": {
			reason: v1alpha1.ReasonProvisioningFailed,
			o: []func(*populate.Observed){population(1), prime(), func(o *populate.Observed) {
				o.PrimeProblem = populate.Problem{Reason: "ProvisioningFailed", Message: "pool is full"}
			}},
			object: "Prime", action: "goes on to try: pool is full",
		},
		"WorkerFailed": {
			reason: v1alpha1.ReasonWorkerFailed,
			o:      []func(*populate.Observed){live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(3, "no"))},
			object: `Worker "sluice-0b7e-1"`, action: "will be repeated",
		},
		"WorkerImage": {
			reason: v1alpha1.ReasonWorkerImageFailed,
			o: []func(*populate.Observed){population(1, recorded(1)), prime(primeBound), volume(), worker(func(w *corev1.Pod) {
				container(w, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}})
			})},
			object: `Worker "sluice-0b7e-1"`, action: `correct its image, or Populator "hello"`,
		},
		"OtherVolume": {
			reason: v1alpha1.ReasonBoundToForeignVolume,
			o: []func(*populate.Observed){live, population(1), claimBoundTo("other"), volume(func(pv *corev1.PersistentVolume) {
				pv.Name, pv.Spec.ClaimRef = "other", &corev1.ObjectReference{Namespace: "tenant", Name: "data", UID: uid}
			})},
			object: `volume "other"`, action: "delete it and create it anew",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed(append([]func(*populate.Observed){population(0)}, tc.o...)...)
			o.Claim.CreationTimestamp = at(time.Hour)
			d := populate.Next(o)
			if _, ok := d.Step.(populate.WriteStatus); !ok || d.Event == nil {
				t.Fatalf("want a status with an event, got %+v", d)
			}
			if d.Event.Reason != tc.reason {
				t.Errorf("reason %q, want %q: %s", d.Event.Reason, tc.reason, d.Event.Message)
			}
			message := d.Event.Message
			for _, want := range []string{tc.object, tc.action} {
				if !strings.Contains(message, want) {
					t.Errorf("it does not say %q: %s", want, message)
				}
			}
			if strings.ContainsAny(message, "\n\r") || strings.HasSuffix(message, ".") || message[:1] != strings.ToUpper(message[:1]) {
				t.Errorf("not one sentence: %q", message)
			}
			if step, _ := d.Step.(populate.WriteStatus); ready(step.Status) != message {
				t.Errorf("the condition says %q, the event %q", ready(step.Status), message)
			}
		})
	}
}

// ready is the message of the Ready condition.
func ready(st v1alpha1.PopulationStatus) string {
	for _, c := range st.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Message
		}
	}
	return ""
}
