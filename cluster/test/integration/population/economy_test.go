package population

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// budget is how many write requests one population may take, its event
// included.
const budget = 9

func TestOnePopulationTakesNineWrites(t *testing.T) {
	startManager(t)
	s := alone(t)
	populator := s.populator(t, runs(500*time.Millisecond))
	s.source(t)
	// The registration is the Populator's, and is made beside its acceptance.
	eventually(t, soon, "the kind is registered", func(ctx context.Context) error {
		return kube.Get(ctx, client.ObjectKey{Name: populator.Name}, &v1beta1.VolumePopulator{})
	})
	since := markNow(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 15*time.Second)
	clean(t, s.namespace, 5*time.Second)
	succeeded(t, claim, 5*time.Second)
	quiet(t, since, 2*time.Second)
	if got := writes(t, since); len(got) > budget {
		t.Errorf("the manager made %d writes, want at most %d: %q", len(got), budget, got)
	}
}

// TestHundredClaims is a burst of a hundred claims, and then a restart with all
// of them settled and their source gone.
func TestHundredClaims(t *testing.T) {
	const claims = 100
	p := startManager(t)
	s := alone(t)
	s.populator(t, runs(time.Second))
	source := s.source(t)
	since, begun := markNow(t), time.Now()
	all := make([]*corev1.PersistentVolumeClaim, claims)
	for i := range all {
		all[i] = s.claim(fmt.Sprintf("claim-%d", i), simulate.ClassImmediate)
		create(t, all[i])
	}
	for _, claim := range all {
		bound(t, claim, 2*time.Minute)
	}
	allBound := time.Since(begun)
	clean(t, s.namespace, 10*time.Second)
	t.Logf("%d claims of 1 s of work each were bound after %v and clean after %v", claims, allBound, time.Since(begun))
	for _, claim := range all {
		succeeded(t, claim, 10*time.Second)
	}
	quiet(t, since, 2*time.Second)
	t.Run("TakeNineWritesEach", func(t *testing.T) {
		got := writes(t, since)
		count := map[string]int{}
		for _, w := range got {
			count[w]++
		}
		t.Logf("%d claims took %d writes: %v", claims, len(got), count)
		// What is slow is told on the way, so a busy machine makes for more writes.
		if limit := claims * (budget + 3); len(got) > limit {
			t.Errorf("the manager made %d writes for %d claims, want at most %d: %v", len(got), claims, limit, count)
		}
	})
	t.Run("RestartWritesNothing", func(t *testing.T) {
		gone(t, source)
		quiet(t, markNow(t), time.Second)
		p.stop(t)
		since := markNow(t)
		begun := time.Now()
		startManager(t)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the manager is ready after %v, want 10 s at most", took)
		}
		quiet(t, since, 4*time.Second)
		if got := writes(t, since); len(got) > 0 {
			t.Errorf("a restart with settled claims wrote %q, want nothing but the lease", got)
		}
	})
}
