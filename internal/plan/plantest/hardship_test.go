package plantest_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// hardshipMutants are planners that do not see what a node, a driver or a crowd
// does to a claim.
func hardshipMutants() map[string]mutant {
	rootOwned := plantest.Scenario{RootOwned: true}
	return map[string]mutant{
		"WorkerThatCannotWrite": {
			reason:   "A worker that cannot write is not worth an attempt",
			scenario: rootOwned,
			planner:  blind(func(o *populate.Observed) { o.Driver = plantest.Scenario{}.Driver() }),
		},
		"RootForgotten": {
			reason:   "Where only root may write, the worker is to be root",
			scenario: rootOwned,
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.CreateWorker); ok {
					s.Worker.Spec.Containers[0].SecurityContext = nil
				}
			}),
		},
		"RootEverywhere": {
			reason: "Where the worker's group may write, nobody is root",
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.CreateWorker); ok {
					s.Worker.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
				}
			}),
		},
		"ConsumerNotTold": {
			reason:   "Who waits for a volume that it can never reach would wait without a word",
			scenario: plantest.Scenario{Unreachable: true},
			planner:  blind(func(o *populate.Observed) { o.Consumers = nil }),
		},
		"ConsumerOfAFillNotTold": {
			reason:   "That a plugin fills the volume makes no difference",
			scenario: plantest.Scenario{Unreachable: true, Plugin: true},
			planner:  blind(func(o *populate.Observed) { o.Consumers = nil }),
		},
		"OutOfTurn": {
			reason:   "A claim that is not its turn waits",
			scenario: plantest.Scenario{Crowded: true},
			planner:  blind(func(o *populate.Observed) { o.Slot = &slots.Verdict{Granted: true} }),
		},
		"OutOfTurnAgain": {
			reason:       "So does its next attempt",
			scenario:     plantest.Scenario{Crowded: true, AlwaysFails: true},
			disturbances: 1,
			only:         []string{"another neighbour"},
			planner: blind(func(o *populate.Observed) {
				if o.Population != nil && o.Population.Spec.Attempt > 0 {
					o.Slot = &slots.Verdict{Granted: true}
				}
			}),
		},
		"EvictedWorkerTrusted": {
			reason:       "A container that its node stopped and that ended with 0 has not finished",
			disturbances: 1,
			only:         []string{"kubelet evicts"},
			planner: blind(func(o *populate.Observed) {
				for i := range o.Workers {
					if s := o.Workers[i].Status.ContainerStatuses; len(s) > 0 && s[0].State.Terminated != nil && s[0].State.Terminated.ExitCode == 0 {
						o.Workers[i].Status.Phase, o.Workers[i].Status.Conditions = corev1.PodSucceeded, nil
					}
				}
			}),
		},
		"KilledWorkerTrusted": {
			reason:       "A container that ran out of memory has not finished",
			disturbances: 1,
			only:         []string{"worker sluice-claim-1-1 runs out"},
			planner: blind(func(o *populate.Observed) {
				for i := range o.Workers {
					if s := o.Workers[i].Status.ContainerStatuses; len(s) > 0 && s[0].State.Terminated != nil {
						s[0].State.Terminated.ExitCode, o.Workers[i].Status.Phase = 0, corev1.PodSucceeded
					}
				}
			}),
		},
		"WorkerOfALostNodeMadeAgain": {
			reason:       "On a node that is not heard of the worker may still be writing",
			disturbances: 1,
			only:         []string{"the node of worker"},
			planner: blind(func(o *populate.Observed) {
				if len(o.Workers) == 0 && len(o.Primes) == 1 && o.Population != nil {
					o.Population.Status.Prime = nil
				}
				for i := range o.Workers {
					o.Workers[i].DeletionTimestamp, o.Workers[i].Status.Conditions = nil, nil
				}
			}),
		},
	}
}
