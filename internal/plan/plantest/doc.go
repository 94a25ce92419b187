// Package plantest tries a population planner against a model of a cluster.
//
// The model holds one claim name with whatever claims, primes, volumes, workers
// and Populations come to stand around it, with UIDs and resourceVersions, and
// actors that behave as those of Kubernetes 1.37 do where it matters to a
// population: PV controller, provisioner, scheduler, kubelet, pvc-protection
// and garbage collector. A manager observes, plans and applies; it keeps nothing
// between two steps, so that every state is also the state after a crash.
//
// Disturbances are what goes wrong: a cache of one kind that stands still, a
// step applied long after it was decided, writes that are refused or apply half,
// workers that fail, nodes that are exhausted, users who delete and re-create
// things. A write that fails without effect (a conflict, an object that is not
// found) leaves the state that was before it, and one that timed out though it
// was applied the state that is after it, so these need no actions of their own.
//
// A path may hold a bounded number of disturbances. Explore visits every state
// that is reachable within the bound, Walk goes beyond it at random, and both
// check the invariants in every state; from every state the cluster must also
// come to rest well once disturbances stop.
package plantest

import "github.com/sluice-dev/sluice/internal/plan/populate"

// Planner is what is tried: populate.Next, or something broken on purpose.
type Planner func(populate.Observed) populate.Decision
