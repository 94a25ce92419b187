package population

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/cluster/simulate"
)

// budget is how many write requests one population may take, its event
// included.
const budget = 9

func TestOnePopulationTakesNineWrites(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(500*time.Millisecond))
	hello(t, ns)
	since := markNow(t)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 15*time.Second)
	clean(t, ns, 5*time.Second)
	succeeded(t, claim, 5*time.Second)
	quiet(t, since, 2*time.Second)
	if got := writes(t, since); len(got) > budget {
		t.Errorf("the manager made %d writes, want at most %d: %q", len(got), budget, got)
	}
}

func TestManyPopulationsTakeNineWritesEach(t *testing.T) {
	const claims = 100
	startManager(t)
	ns := namespace(t)
	populator(t, runs(time.Second))
	hello(t, ns)
	since, begun := markNow(t), time.Now()
	all := make([]*corev1.PersistentVolumeClaim, claims)
	for i := range all {
		all[i] = newClaim(ns, fmt.Sprintf("claim-%d", i), simulate.ClassImmediate)
		create(t, all[i])
	}
	for _, claim := range all {
		bound(t, claim, 2*time.Minute)
	}
	allBound := time.Since(begun)
	clean(t, ns, 10*time.Second)
	t.Logf("%d claims of 1 s of work each were bound after %v and clean after %v", claims, allBound, time.Since(begun))
	for _, claim := range all {
		succeeded(t, claim, 10*time.Second)
	}
	quiet(t, since, 2*time.Second)
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
}

func TestRestartWithSettledClaimsWritesNothing(t *testing.T) {
	const claims = 5
	p := startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	var all []*corev1.PersistentVolumeClaim
	for i := range claims {
		claim := newClaim(ns, fmt.Sprintf("claim-%d", i), simulate.ClassImmediate)
		create(t, claim)
		all = append(all, claim)
	}
	for _, claim := range all {
		bound(t, claim, 30*time.Second)
		succeeded(t, claim, 10*time.Second)
	}
	clean(t, ns, 10*time.Second)
	quiet(t, markNow(t), time.Second)
	p.stop(t)

	since := markNow(t)
	startManager(t)
	quiet(t, since, 4*time.Second)
	if got := writes(t, since); len(got) > 0 {
		t.Errorf("a restart with settled claims wrote %q, want nothing but the lease", got)
	}
}

func TestManagerKilledInTheMiddle(t *testing.T) {
	p := startManager(t)
	ns := namespace(t)
	populator(t, runs(3*time.Second))
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(ns))
	p.kill(t)

	startManager(t, "--lease-duration=3s")
	bound(t, claim, 40*time.Second)
	if got := succeeded(t, claim, 10*time.Second); got.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want the running one to be taken over", got.Spec.Attempt)
	}
	clean(t, ns, 10*time.Second)
}
