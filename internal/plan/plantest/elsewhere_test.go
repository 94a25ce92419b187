package plantest_test

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// elsewhereMutants are planners that break a rule of temporaries in another
// namespace than their claim.
func elsewhereMutants() map[string]mutant {
	system := plantest.Scenario{Placement: v1alpha1.PlacementSystem}
	source := plantest.Scenario{Placement: v1alpha1.PlacementSource}
	return map[string]mutant{
		"FinalizerWrittenLate": {
			reason:   "A claim deleted before it is held would leave what is made elsewhere",
			scenario: system,
			planner: blind(func(o *populate.Observed) {
				if o.Claim != nil && len(o.Primes) == 0 {
					o.Claim.Finalizers = []string{v1alpha1.FinalizerPopulation}
				}
			}),
		},
		"FinalizerRemovedEarly": {
			reason:   "What is being deleted may still be there when the claim is let go",
			scenario: system,
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if d.Why == populate.WhyAwaitGone && d.Need == 0 {
					d.Step = populate.SetFinalizer{Namespace: o.Namespace, Name: o.Name, UID: o.Claim.UID, ResourceVersion: o.Claim.ResourceVersion}
				}
			}),
		},
		"FinalizerKept": {
			reason:   "A settled claim must not hang on anything of ours",
			scenario: system,
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if d.Why == populate.WhyLetGo {
					*d = populate.Decision{Why: d.Why}
				}
			}),
		},
		"PlacementNotRecorded": {
			reason:       "Where temporaries are is what the record says, not what the populator says by now",
			scenario:     system,
			disturbances: 1,
			only:         []string{"user changes the placement"},
			planner: blind(func(o *populate.Observed) {
				if o.Population != nil && o.Populator != nil {
					o.Population.Spec.Namespace = ""
					if o.Populator.Spec.Placement == v1alpha1.PlacementSystem {
						o.Population.Spec.Namespace = o.System
					}
				}
			}),
		},
		"GrantIgnored": {
			reason:       "Work that is not begun stops when the grant goes",
			scenario:     source,
			disturbances: 1,
			only:         []string{"user revokes the grant"},
			planner: blind(func(o *populate.Observed) {
				o.Source.Granted, o.Source.State = true, populate.SourceFound
			}),
		},
	}
}

// TestWritesElsewhere counts what a population costs that waits for nobody and
// whose temporaries live in another namespace: at most twelve, with its event.
func TestWritesElsewhere(t *testing.T) {
	for _, placement := range []v1alpha1.Placement{v1alpha1.PlacementSystem, v1alpha1.PlacementSource} {
		t.Run(string(placement), func(t *testing.T) {
			e := plantest.Explorer{Planner: populate.Next, Scenario: plantest.Scenario{Name: string(placement), Placement: placement}}
			steps, events := e.Straight()
			writes := len(steps) + len(events)
			for _, s := range steps {
				if _, ok := s.(populate.CreateWorker); ok {
					writes++ // it writes the record too
				}
			}
			if writes > 12 {
				t.Errorf("%d writes, want at most 12: %v and %v", writes, steps, events)
			}
			t.Logf("%d writes", writes)
		})
	}
}
