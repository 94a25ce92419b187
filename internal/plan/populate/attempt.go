package populate

import (
	"fmt"
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The back-off between attempts doubles from its base up to its cap. What
// merely vanished is tried again sooner than what failed.
const (
	backOffBase  = 10 * time.Second
	backOffLost  = time.Second
	backOffLimit = 5 * time.Minute

	defaultMaxAttempts = 6

	// keepWorker is how long the last failed worker stays for its log.
	keepWorker = time.Hour

	// refusedAgain is how soon a refused write is tried again.
	refusedAgain = 10 * time.Second
)

// backOff is how long to wait after a failed attempt: exponential in the
// failures in a row, spread by up to a fifth so that claims that failed
// together do not come back together, and always the same for one attempt.
func backOff(uid string, r *v1alpha1.Result) time.Duration {
	d := backOffBase
	if r.Reason == v1alpha1.ReasonVolumeLost || r.Reason == v1alpha1.ReasonPlacementChanged {
		d = backOffLost
	}
	for range max(r.Failures, 1) - 1 {
		if d *= 2; d >= backOffLimit {
			d = backOffLimit
			break
		}
	}
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%d", uid, r.Attempt) // a hash takes everything
	return d + time.Duration(int64(d)/5*int64(h.Sum32()%1000)/1000)
}

// ending is how an attempt ended badly.
type ending struct {
	reason, message string
	permanent       bool
	exitCode        *int32
	// source and populator are the generations that the attempt used.
	source, populator int64
	// node, if set, is given back to the scheduler.
	node string
}

// fail records that attempt n ended, on a live observation only. From then on
// nothing of the attempt is used, whatever is seen of it.
func (v *view) fail(why string, e ending) Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: why}
	}
	if e.source == 0 {
		e.source = v.Source.Generation
	}
	if e.populator == 0 && v.Populator != nil {
		e.populator = v.Populator.Generation
	}
	r := v1alpha1.Result{
		Attempt: v.n, Reason: e.reason, Message: e.message, ExitCode: e.exitCode, Permanent: e.permanent,
		SourceGeneration: e.source, PopulatorGeneration: e.populator, Failures: 1, EndedAt: v.time(),
	}
	// A plugin's success that came to nothing carries on the count.
	if last := v.status().Result; last != nil && (!last.Succeeded || last.Attempt == v.n) &&
		last.SourceGeneration == r.SourceGeneration && last.PopulatorGeneration == r.PopulatorGeneration {
		r.Failures = last.Failures + 1
	}
	phase, message := v1alpha1.PhaseWaiting, fmt.Sprintf("Attempt %d failed and will be repeated: %s", v.n, e.message)
	if limit := v.maxAttempts(); r.Permanent || r.Failures >= limit {
		phase = v1alpha1.PhaseFailed
		message = fmt.Sprintf("Attempt %d of %d failed, change the source or its populator for another: %s", r.Failures, limit, e.message)
		if r.Permanent {
			message = fmt.Sprintf("Attempt %d failed for good, change the source or its populator for another: %s", v.n, e.message)
		}
	}
	told := warning
	if e.reason == v1alpha1.ReasonVolumeLost && phase == v1alpha1.PhaseWaiting {
		// Nobody has to act: it is repeated at once, and after a crash of the
		// manager it may be that there never was a worker.
		told = normal
	}
	recorded := v.recorded()
	return v.say(why, 0, report{
		phase: phase, reason: e.reason, message: message, event: told, keepSource: true,
		change: func(st *v1alpha1.PopulationStatus) {
			if !recorded {
				// No worker read the source as it was taken down, if it was at
				// all: what this attempt saw is what a change is measured by.
				v.source(st)
			}
			st.Result, st.Prime, st.Fill, st.Progress = &r, nil, nil, nil
			st.VolumeName, st.VolumeUID, st.NodeName = "", "", e.node
		},
	})
}

func (v *view) maxAttempts() int32 {
	if v.Populator == nil || v.Populator.Spec.MaxAttempts < 1 {
		return defaultMaxAttempts
	}
	return v.Populator.Spec.MaxAttempts
}

// attemptFailed is the rule of a Population whose attempt n has failed.
func attemptFailed(v *view) (Decision, bool) {
	r := v.failed()
	if r == nil {
		return Decision{}, false
	}
	// What still runs is stopped; a worker that has ended is kept for its log.
	if v.worker != nil && !ended(v.worker) {
		if d, ok := v.deleteWorker(WhyClearing, v.worker); ok {
			return d, true
		}
	}
	// The prime goes at once, too, as far as a kept worker does not hold it.
	if v.prime != nil {
		if d, ok := v.deletePrime(WhyClearing, v.prime); ok {
			return d, true
		}
		if d, ok := v.awaitPlugin(WhyClearing, v.prime); ok {
			return d, true
		}
	}
	rearmed := v.rearmed(r)
	if v.pop.Status.Phase == v1alpha1.PhaseFailed && !rearmed {
		return v.stayFailed(r), true
	}
	if d, ok := v.unselect(); ok {
		return d, true
	}
	if wait := v.until(r, backOff(string(v.ClaimUID), r)); wait > 0 && !rearmed {
		return Decision{RequeueAfter: wait, Why: WhyBackOff}, true
	}
	if d, ok := admission(v); ok {
		return d, true
	}
	if v.worker != nil {
		if d, ok := v.deleteWorker(WhyClearing, v.worker); ok {
			return d, true
		}
	}
	if v.lingering() || (v.place != v.namespace && v.remains()) {
		// One namespace at a time is known to hold something.
		return Decision{RequeueAfter: recheck, Why: WhyClearing}, true
	}
	if d, ok := v.slot(); ok {
		return d, true
	}
	return v.allocate(WhyNextAttempt), true
}

// until is how long it is until some time after the end of an attempt.
func (v *view) until(r *v1alpha1.Result, d time.Duration) time.Duration {
	if r.EndedAt == nil {
		return 0
	}
	return v.left(d, r.EndedAt.Time)
}

// rearmed says that the source or its populator changed since the attempt, so
// that another may end differently.
func (v *view) rearmed(r *v1alpha1.Result) bool {
	if v.Source.State == SourceFound {
		if v.Source.Generation != r.SourceGeneration {
			return true
		}
		if s := v.status().Source; s != nil && s.UID != "" && s.UID != v.Source.UID {
			return true
		}
	}
	return v.Populator != nil && v.Populator.Generation != r.PopulatorGeneration
}

func (v *view) stayFailed(r *v1alpha1.Result) Decision {
	if v.worker == nil {
		if d, ok := v.letGo(); ok {
			return d
		}
		return Decision{Why: WhyFailed}
	}
	if wait := v.until(r, keepWorker); wait > 0 {
		return Decision{RequeueAfter: wait, Why: WhyKeepWorker}
	}
	d, _ := v.deleteWorker(WhyFailed, v.worker)
	d.Why = WhyFailed
	return d
}

// lingering says that something of an ended attempt has yet to vanish: the
// next one would count twice against quotas and capacity. Patience has an end.
func (v *view) lingering() bool {
	return v.some(func(o metav1.Object) bool {
		going := o.GetDeletionTimestamp()
		return v.expected(o) && (going == nil || v.left(terminatingPatience, going.Time) > 0)
	})
}

// unselect gives the node that provisioning failed on back to the scheduler,
// once the prime and its volume are gone. In a failed attempt's status, nodeName
// is the node still to be given back.
func (v *view) unselect() (Decision, bool) {
	node := v.status().NodeName
	switch {
	case node == "":
		return Decision{}, false
	case v.prime != nil || len(v.heldByName(v.n)) > 0:
		return Decision{RequeueAfter: recheck, Why: WhyUnselectNode}, true
	case !v.Live:
		return Decision{Need: NeedLive, Why: WhyUnselectNode}, true
	case v.claim.Annotations[annSelectedNode] == node:
		return Decision{Why: WhyUnselectNode, Step: UnselectNode{
			Namespace: v.claim.Namespace, Name: v.claim.Name, UID: v.claim.UID, ResourceVersion: v.claim.ResourceVersion,
		}}, true
	}
	// Given back. The scheduler may choose the same node again, so this is noted.
	st := *v.pop.Status.DeepCopy()
	st.NodeName = ""
	return Decision{Why: WhyUnselectNode, Step: WriteStatus{
		Namespace: v.pop.Namespace, Name: v.pop.Name, UID: v.pop.UID, ResourceVersion: v.pop.ResourceVersion, Status: st,
	}}, true
}

// allocate takes the token of the next attempt, beyond every number that
// anything of this claim bears.
func (v *view) allocate(why string) Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: why}
	}
	return Decision{Why: why, Step: Allocate{
		Namespace: v.pop.Namespace, Name: v.pop.Name, UID: v.pop.UID, ResourceVersion: v.pop.ResourceVersion, To: v.highest + 1,
		Temporaries: v.elsewhere(v.place),
	}}
}
