package populate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

const zone = corev1.LabelTopologyZone

func demand(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func selector(terms ...[]corev1.NodeSelectorRequirement) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for _, t := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
	}
	return s
}

func TestConsumerThatCannotReachTheVolume(t *testing.T) {
	const (
		in, notIn, exists, not = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
		gt                     = corev1.NodeSelectorOpGt
	)
	type terms = []corev1.NodeSelectorRequirement
	inA := selector(terms{demand(zone, in, "a")})
	cases := map[string]struct {
		reason   string
		volume   *corev1.NodeSelector
		selector map[string]string
		affinity *corev1.NodeSelector
		going    bool
		stranded bool
	}{
		"NoDemand":       {reason: "A Pod that may run anywhere follows its volume", volume: inA},
		"Everywhere":     {reason: "A volume that is reached everywhere keeps nobody", selector: map[string]string{zone: "b"}},
		"SameZone":       {reason: "They agree", volume: inA, selector: map[string]string{zone: "a"}},
		"OtherZone":      {reason: "The Pod must be where the volume is not", volume: inA, selector: map[string]string{zone: "b"}, stranded: true},
		"OtherZoneGoing": {reason: "A Pod that goes waits for nothing", volume: inA, selector: map[string]string{zone: "b"}, going: true},
		"OtherKey":       {reason: "A node may well have both labels", volume: inA, selector: map[string]string{"disk": "ssd"}},
		"OneOfTwoTerms":  {reason: "The volume is reached in either of two ways", volume: selector(terms{demand(zone, in, "a")}, terms{demand(zone, in, "b")}), selector: map[string]string{zone: "b"}},
		"Affinity":       {reason: "Affinity demands as well", volume: inA, affinity: selector(terms{demand(zone, in, "b", "c")}), stranded: true},
		"EitherAffinity": {reason: "One of the Pod's terms is enough", volume: inA, affinity: selector(terms{demand(zone, in, "b")}, terms{demand("disk", exists)})},
		"NotThere":       {reason: "The one place where the volume is, is ruled out", volume: inA, affinity: selector(terms{demand(zone, notIn, "a")}), stranded: true},
		"NotElsewhere":   {reason: "Another place is ruled out", volume: inA, affinity: selector(terms{demand(zone, notIn, "b")})},
		"NoLabel":        {reason: "The label that the volume needs must be missing", volume: inA, affinity: selector(terms{demand(zone, not)}), stranded: true},
		"AnyLabel":       {reason: "Any value will do", volume: inA, affinity: selector(terms{demand(zone, exists)})},
		"LabelMissing":   {reason: "And the other way round", volume: selector(terms{demand("gen", not)}), affinity: selector(terms{demand("gen", gt, "1")}), stranded: true},
		"Numbers":        {reason: "In doubt nothing is said", volume: selector(terms{demand("gen", in, "1")}), affinity: selector(terms{demand("gen", gt, "1")})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeSelector: tc.selector}}
			if tc.affinity != nil {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: tc.affinity}}
			}
			if tc.going {
				podDeleting(0)(&pod)
			}
			reached := func(pv *corev1.PersistentVolume) {
				if tc.volume != nil {
					pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: tc.volume}
				}
			}
			waits := func(o *populate.Observed) { o.Consumers = []corev1.Pod{pod} }
			running := outlineOf(populate.Next(observed(population(1, recorded(1)), prime(primeBound), volume(reached),
				worker(workerRunning(3*time.Second)), waits)))
			done := outlineOf(populate.Next(observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting),
				volume(reached), worker(workerEnded(0, "")), waits)))
			told, ended := "Normal PopulationStarted", ""
			if tc.stranded {
				told, ended = "Warning VolumeUnreachableForPod", "Warning VolumeUnreachableForPod"
			}
			if running.Event != told || done.Event != ended || done.Step != "rebind volume at 40 to 0b7e" {
				t.Errorf("%s: told %q while it is filled and %q in the end, want %q and %q", tc.reason, running.Event, done.Event, told, ended)
			}
		})
	}
}

// TestStrandedConsumersAreToldInOneWay has the Pods of a Deployment wait for a
// claim: caches list them in any order, and what is told must not depend on it,
// or it would be written again and again.
func TestStrandedConsumersAreToldInOneWay(t *testing.T) {
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeSelector: map[string]string{zone: "b"}}}
	}
	told := func(pods ...corev1.Pod) string {
		d := populate.Next(observed(live, population(1, recorded(1)), prime(primeBound), volume(func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: selector([]corev1.NodeSelectorRequirement{demand(zone, corev1.NodeSelectorOpIn, "a")})}
		}), worker(workerRunning(time.Minute)), func(o *populate.Observed) { o.Consumers = pods }))
		if d.Event == nil {
			t.Fatalf("nothing is told: %s", d.Why)
		}
		return d.Event.Message
	}
	if one, other := told(pod("web-1"), pod("web-2")), told(pod("web-2"), pod("web-1")); one != other {
		t.Errorf("in another order it is told as %q instead of %q", other, one)
	}
}
