// Package populate decides the next step in filling one claim. It is pure: it
// imports no client, reads no clock and does no I/O.
//
// Next looks at one observation and takes the first rule that has something to
// say. A claim passes through these states; n is spec.attempt of its
// Population.
//
//	state               seen by                                     step
//	------------------  ------------------------------------------  ------------------------------------------
//	gone                no claim of this UID, or being deleted      delete worker and prime; volume to Delete;
//	                                                                then the finalizer
//	settled             Population Succeeded                        delete what is left, then the finalizer,
//	                                                                then nothing at all
//	impostor            Population of another UID or maker          delete it, wait until it is gone
//	foreign volume      a volume labelled foreign                   clear claimRef, restore its policy
//	bound               claim has a volume                          ours: Succeeded; another: Failed
//	handed over         volume filled, claimRef is the claim        wait for Kubernetes to bind
//	left behind         temporaries of other attempts               delete them
//	attempt failed      result n failed                             back-off, then allocate n+1; or stay Failed
//	fill n              status.fill of a plugin                     ask it; done: record, hand over; failed: result n
//	worker n            own worker                                  wait; succeeded: hand over; failed: result n
//	prime n             own prime, no worker                        wait for its volume; then record and worker
//	prime n, no node    filled before a consumer is about           scout, until the prime has its volume
//	worker lost         recorded, but no worker                     result n
//	admission           nothing of attempt n                        checks in order, each a reason to wait
//	admitted            all checks passed                           Population / allocate / finalizer / prime
//
// The hand-over of attempt n is, on one live observation: DELETE prime n (its
// worker, even ended, keeps it from vanishing), then one patch of the volume
// that replaces claimRef and labels it filled, under the resourceVersion that
// was read. After that the volume itself is the evidence.
//
// Evidence that survives a crash between any two writes:
//   - spec.attempt: attempts 1..n were allocated; n's names may be in use, in
//     spec.namespace.
//   - status.prime: a worker of attempt n may exist or have existed. It is
//     written before the worker, so a vanished worker is never mistaken for one
//     that was not made yet, and never replaced on the same volume.
//   - status.result: attempt result.attempt has ended.
//   - status.fill: the plugin may have begun to fill; then status.result says
//     also when it succeeded, before the hand-over. See fill.go for how a plugin,
//     which has no worker that would hold the prime, comes through the same
//     states: its prime goes last.
//   - FinalizerPlugin on a prime: the plugin has yet to be told to clean up.
//   - label role=filled on a volume: the hand-over took place.
//
// Nothing else is remembered.
package populate

import "time"

// recheck is how often something is looked at again that no watch reports.
const recheck = 30 * time.Second

// Next decides about one observation. It never fails: what cannot be decided is
// waited for, with a reason.
func Next(o Observed) Decision {
	v := look(o)
	return v.heed(decide(v))
}

func decide(v *view) Decision {
	for _, rule := range []func(*view) (Decision, bool){
		gone, notAsked, settled, impostor, giveBack, bound, handedOver, leftBehind,
		attemptFailed, fillStands, workerStands, primeStands, workerLost, admission,
	} {
		if d, ok := rule(v); ok {
			return d
		}
	}
	return admitted(v)
}

// notAsked lets a claim be that names no source of a kind that a populator
// could serve, or whose kind is none of our business: nobody of ours serves it
// and nothing of ours was begun.
func notAsked(v *view) (Decision, bool) {
	begun := v.Population != nil || len(v.otherPrimes) > 0 || len(v.otherWorkers) > 0
	if begun || (v.Populator != nil && asks(v.claim)) {
		return Decision{}, false
	}
	if d, ok := v.letGo(); ok {
		return d, true
	}
	return Decision{Why: WhyNotAsked}, true
}
