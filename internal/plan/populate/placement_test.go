package populate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// placed says which placement the populator has.
func placed(p v1alpha1.Placement) func(*populate.Observed) {
	return func(o *populate.Observed) { o.System, o.Populator.Spec.Placement = "sluice-system", p }
}

// in says that the record's attempt lives in a namespace.
func in(namespace string) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.System, o.Population.Spec.Namespace = "sluice-system", namespace
		if p := o.Population.Status.Prime; p != nil {
			p.Namespace = namespace
		}
	}
}

// held puts our finalizer on the claim.
func held(o *populate.Observed) { o.Claim.Finalizers = []string{v1alpha1.FinalizerPopulation} }

// takenUp says that Kubernetes named the claim's provisioner.
func takenUp(o *populate.Observed) {
	metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "volume.kubernetes.io/storage-provisioner", "disk.example.com")
}

// primeIn and workerIn are temporaries of attempt 1 as they are in another
// namespace than the claim's.
func primeIn(namespace string, changes ...func(*corev1.PersistentVolumeClaim)) func(*populate.Observed) {
	return prime(append([]func(*corev1.PersistentVolumeClaim){func(p *corev1.PersistentVolumeClaim) { strange(&p.ObjectMeta, namespace) }}, changes...)...)
}

func workerIn(namespace string, changes ...func(*corev1.Pod)) func(*populate.Observed) {
	return worker(append([]func(*corev1.Pod){func(w *corev1.Pod) { strange(&w.ObjectMeta, namespace) }}, changes...)...)
}

func strange(m *metav1.ObjectMeta, namespace string) {
	m.Namespace, m.OwnerReferences = namespace, nil
	m.Annotations[v1alpha1.AnnotationClaim] = "tenant/data"
}

func claimDeleting(o *populate.Observed) {
	t := at(time.Minute)
	o.Claim.DeletionTimestamp, o.Populator, o.Class, o.Source = &t, nil, nil, populate.Source{}
}

func recordGone(o *populate.Observed) { o.Population = nil }

func goingFor(d time.Duration) func(*corev1.PersistentVolumeClaim) {
	return func(p *corev1.PersistentVolumeClaim) { t := at(d); p.DeletionTimestamp = &t }
}

func TestNextPlacement(t *testing.T) {
	unmarked := func(w *corev1.Pod) { delete(w.Annotations, v1alpha1.AnnotationClaim) }
	run(t, map[string]nextCase{
		"Hold": {
			reason: "A claim is held before anything is made elsewhere",
			o:      observed(live, takenUp, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system")),
			want:   outline{Step: "set finalizer", Why: populate.WhyHold},
		},
		"HoldYet": {
			reason: "Kubernetes' first write to the claim comes before ours",
			o: observed(live, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system"), func(o *populate.Observed) {
				o.Claim.CreationTimestamp = at(time.Second)
			}),
			want: outline{Again: 2 * time.Second, Why: populate.WhyHold},
		},
		"HoldTold": {
			reason: "And if it does not come that is said",
			o:      observed(live, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system")),
			want:   outline{Step: "status Waiting Provisioning", Event: "Normal Provisioning", Again: 5 * time.Minute, Why: populate.WhyHold},
		},
		"Held": {
			reason: "Then the prime is made",
			o:      observed(live, takenUp, held, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system")),
			want:   outline{Step: "create prime " + name1, Why: populate.WhyCreatePrime},
		},
		"HeldNoMore": {
			reason: "A finalizer that somebody took away is written again before the worker",
			o:      observed(live, takenUp, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system"), primeIn("sluice-system", primeBound), volumeIn("sluice-system"), rendered),
			want:   outline{Step: "set finalizer", Why: populate.WhyHold},
		},
		"Worker": {
			reason: "A prime that the record speaks of is our own in its namespace, without an owner",
			o:      observed(live, takenUp, held, placed(v1alpha1.PlacementSystem), population(1), in("sluice-system"), primeIn("sluice-system", primeBound), volumeIn("sluice-system"), rendered),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"PlacementEdited": {
			reason: "An edited placement counts from the next attempt on",
			o:      observed(live, takenUp, held, placed(v1alpha1.PlacementClaim), population(1), in("sluice-system"), primeIn("sluice-system", primeBound), volumeIn("sluice-system"), rendered),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"SourceMoved": {
			reason: "A worker in the namespace of a source that the claim no longer names could mount what is there for another",
			o: observed(live, takenUp, held, placed(v1alpha1.PlacementAuto), population(1), in("other"), primeIn("other", primeBound), volumeIn("other"), rendered, elsewhere, naming, func(o *populate.Observed) {
				o.Source.Granted = true
			}),
			want: outline{Step: "status Waiting PlacementChanged", Event: "Warning PlacementChanged", Why: populate.WhyMoved},
		},
		"Success": {
			reason: "The claim stays held while the worker is there",
			o:      observed(live, held, claimBoundTo("pv"), population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), in("sluice-system"), workerIn("sluice-system", workerEnded(0, "")), volume(handedOver)),
			want:   outline{Step: "delete worker worker", Why: populate.WhySettled},
		},
		"SuccessGoing": {
			reason: "Nor while the prime is going",
			o:      observed(live, held, claimBoundTo("pv"), population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), in("sluice-system"), primeIn("sluice-system", primeDeleting), volume(handedOver)),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyAwaitGone},
		},
		"SuccessCached": {
			reason: "That nothing is left is seen live",
			o:      observed(held, claimBoundTo("pv"), population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), in("sluice-system"), volume(handedOver)),
			want:   outline{Need: populate.NeedLive, Why: populate.WhyLetGo},
		},
		"SuccessGone": {
			reason: "Then it is let go",
			o:      observed(live, held, claimBoundTo("pv"), population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), in("sluice-system"), volume(handedOver)),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
		"DeletedRecordLost": {
			reason: "With the namespace of the claim its record goes first; what says that it was made for the claim is found by its label",
			o:      observed(live, held, population(1), primeIn("sluice-system"), claimDeleting, recordGone),
			want:   outline{Step: "delete prime prime at 30", Why: populate.WhyGone},
		},
		"DeletedForged": {
			reason: "What merely bears the label elsewhere is somebody's: neither deleted nor waited for",
			o:      observed(live, held, population(1), workerIn("other", unmarked), claimDeleting, recordGone),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
		"DeletedElsewhere": {
			reason: "The recorded namespace decides, and what stands in a third goes too but is not waited for",
			o:      observed(live, held, population(1), in("sluice-system"), primeIn("other", primeDeleting), claimDeleting),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
		"DeletedGoing": {
			reason: "A claim waits until its prime is gone",
			o:      observed(live, held, population(1), in("sluice-system"), primeIn("sluice-system", goingFor(59*time.Second)), claimDeleting),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyAwaitGone},
		},
		"DeletedNodeDead": {
			reason: "But not for ever: its node may be dead",
			o:      observed(live, held, population(1), in("sluice-system"), primeIn("sluice-system", goingFor(time.Minute)), claimDeleting),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
		"DeletedBeforeAnything": {
			reason: "A claim that was held and deleted before there was a prime is let go",
			o:      observed(live, held, population(1), in("sluice-system"), claimDeleting),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
		"NobodyServes": {
			reason: "A claim that nobody of ours serves any more is not held either",
			o:      observed(live, held, func(o *populate.Observed) { o.Populator = nil }),
			want:   outline{Step: "remove finalizer", Why: populate.WhyLetGo},
		},
	})
}

// volumeIn is the volume of a prime of another namespace.
func volumeIn(namespace string) func(*populate.Observed) {
	return volume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Namespace = namespace })
}

// TestAllocatePlacement says where the first attempt's temporaries belong.
func TestAllocatePlacement(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      populate.Observed
		want   string
	}{
		"Auto":          {"The claim's own namespace is the default", observed(live, population(0)), ""},
		"AutoElsewhere": {"Also of a source elsewhere that names nothing", observed(live, population(0), elsewhere), ""},
		"AutoNaming":    {"What a source names can be mounted beside the source only", observed(live, population(0), elsewhere, naming), "vault"},
		"Source":        {"Beside the source as the populator has it", observed(live, population(0), elsewhere, placed(v1alpha1.PlacementSource)), "vault"},
		"SourceHere":    {"A source in the claim's namespace is no other place", observed(live, population(0), placed(v1alpha1.PlacementSource)), ""},
		"System":        {"The manager's namespace", observed(live, population(0), placed(v1alpha1.PlacementSystem)), "sluice-system"},
		"Moved":         {"A next attempt goes where the populator has it by now", observed(live, placed(v1alpha1.PlacementClaim), population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Hour)), in("sluice-system"), held), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := populate.Next(tc.o)
			s, ok := d.Step.(populate.Allocate)
			if !ok {
				t.Fatalf("%s: step is %T (%s), want an allocation", tc.reason, d.Step, d.Why)
			}
			if s.Temporaries != tc.want {
				t.Errorf("%s: in namespace %q, want %q", tc.reason, s.Temporaries, tc.want)
			}
		})
	}
}

// TestNextSecretNotOffered is a worker whose Secret nobody offered: the
// container that looks for the offer is not the worker's, and its word counts.
func TestNextSecretNotOffered(t *testing.T) {
	refused := func(w *corev1.Pod) {
		w.Status.Phase = corev1.PodFailed
		w.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.OfferContainer, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: `{"reason":"SecretNotOffered","message":"look into Secret \"token\"","permanent":true}`},
		}}}
	}
	run(t, map[string]nextCase{
		"Refused": {
			reason: "It is told with its reason, and for good",
			o:      observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(refused)),
			want:   outline{Step: "status Failed SecretNotOffered", Event: "Warning SecretNotOffered", Why: populate.WhyAttemptEnded},
		},
	})
}
