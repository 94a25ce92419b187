package population

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestClaimOfImmediateClassIsFilled(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(200*time.Millisecond))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)

	volume := bound(t, claim, 15*time.Second)
	if got := volume.Spec.PersistentVolumeReclaimPolicy; got != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("reclaim policy of the volume is %s, want the class's", got)
	}
	clean(t, s.namespace, 5*time.Second)
	p := succeeded(t, claim, 5*time.Second)
	if p.Status.VolumeName != volume.Name || p.Spec.Attempt != 1 {
		t.Errorf("population names volume %q and attempt %d, want %q and 1", p.Status.VolumeName, p.Spec.Attempt, volume.Name)
	}
	// The event follows the record, and a slow machine is told that it began, too.
	var told []string
	eventually(t, 5*time.Second, "the success is told", func(context.Context) error {
		told = slices.DeleteFunc(events(t, claim), func(e string) bool { return e == "Normal "+v1alpha1.ReasonPopulationStarted })
		if len(told) == 0 {
			return errors.New("no event")
		}
		return nil
	})
	if diff := cmp.Diff([]string{"Normal " + v1alpha1.ReasonPopulated}, told); diff != "" {
		t.Errorf("events on the claim (-want +got):\n%s", diff)
	}
}

func TestClaimOfWaitingClassIsFilledOnTheConsumersNode(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(200*time.Millisecond))
	s.source(t)
	claim := s.claim("claim", simulate.ClassWait)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonWaitingForConsumer, 5*time.Second)

	pod := consumer(s.namespace, claim.Name)
	create(t, pod)
	volume := bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
	succeeded(t, claim, 5*time.Second)
	node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	eventually(t, 20*time.Second, "consumer runs", runsOn(pod, node))
}

func TestLateSourceIsNoticed(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonSourceNotFound, 5*time.Second)
	s.source(t)
	bound(t, claim, 15*time.Second)
	clean(t, s.namespace, 5*time.Second)
}

func TestDeletedClaimLeavesNothing(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Hour))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonPopulationStarted, 15*time.Second)
	gone(t, claim)
	clean(t, s.namespace, 15*time.Second)
	eventually(t, 15*time.Second, "volumes are gone", noVolumes(s.namespace))
}
