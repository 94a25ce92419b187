// Package affinity decides the next step in changing the node affinity of one
// volume (KEP-5381). It is pure: it imports no client, reads no clock and does
// no I/O.
//
// The principle: what is recorded on the volume never promises a node that the
// storage cannot serve. From a set of nodes A to a set B
//
//	widen    the storage first, then write B
//	narrow   write B, settle, then the storage
//	move     write what A and B have in common, settle, the storage, then write B
//
// and where the storage has moved already there is one write, of B. A write
// that takes nodes away is fenced: a mark says to the gate which bindings are
// still allowed, every Pod that is not bound yet is touched, so that a binding
// admitted before the mark no longer applies, and only then are the Pods that
// are bound looked at for the last time.
//
// Next looks at one observation and takes the first rule that has something to
// say. J is status.journal.
//
//	state             seen by                                      step
//	----------------  -------------------------------------------  -------------------------------------
//	ended             completedAt                                  release mark and finalizer; delete later
//	volume gone       no volume, or another than J's               Failed
//	foreign edit      affinity or labels neither before nor after  Failed, nothing is written over it
//	not begun         no J                                         checks, plan; then J with stage Begun
//	begun             J Begun                                      fence the first write, or on to the storage
//	written?          J Narrowing/Target/Restore, volume as before  the write
//	written           volume as after                              release the mark, settle
//	storage           settled, or nothing to narrow                wait for it, or change the class
//	storage failed    J.storageFailed                              class back, then the old affinity
//	given up          spec.state Aborted                           the old affinity, unless the storage moved
//	done              volume has the target, settled               Succeeded
//
// A change that is blocked by Pods before its first write holds no mark: it
// restricts nobody. A crash between any two writes finds J written before the
// write that it speaks of.
package affinity

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

// The times of a change.
const (
	// settleFence is how long after a fenced write the volume is looked at again.
	settleFence = time.Second
	// settleWait is how long a binding that nothing fences may take to appear:
	// a create request may live 34 s, and its goroutine outlives even that.
	settleWait = 45 * time.Second
	// recheck is how often something is looked at that no watch reports.
	recheck = 30 * time.Second
	// refusedAgain is how soon a write is tried again that the API server refuses
	// because node affinity is immutable there.
	refusedAgain = 2 * time.Minute
)

// Next decides about one observation. It never fails: what cannot be decided is
// waited for, with a reason.
func Next(o Observed) Decision {
	v := look(o)
	for _, rule := range []func(*view) (Decision, bool){
		ended, volumeGone, notBegun, foreignEdit, kindChanged, givenUp, paused, refusedWrite, unwritten, unsettled, storage, storageFailed, last,
	} {
		if d, ok := rule(v); ok {
			return d
		}
	}
	return v.end(WhyDone, change.PhaseSucceeded, change.ReasonAffinityChanged, v.summary())
}

// ended is the rule of a change that is over.
func ended(v *view) (Decision, bool) {
	c := v.Change
	if c.Status.CompletedAt == nil {
		return Decision{}, false
	}
	if d, ok := v.releaseMark(WhyEnded); ok {
		return d, true
	}
	if v.hasFinalizer() {
		return Decision{Step: SetFinalizer{}, Why: WhyEnded}, true
	}
	ttl := time.Duration(change.DefaultTTL) * time.Second
	if s := c.Spec.TTLSecondsAfterFinished; s != nil {
		ttl = time.Duration(*s) * time.Second
	}
	if left := ttl - v.Now.Sub(c.Status.CompletedAt.Time); left > 0 {
		return Decision{RequeueAfter: left, Why: WhyEnded}, true
	}
	if c.DeletionTimestamp != nil {
		return Decision{Why: WhyEnded}, true
	}
	return Decision{Step: DeleteChange{}, Why: WhyEnded}, true
}

// volumeGone is the rule of a volume that is not there, or no longer the one
// that the change was begun on.
func volumeGone(v *view) (Decision, bool) {
	switch {
	case v.Volume == nil && !v.Live, v.replaced() && !v.Live:
		return Decision{NeedLive: true, Why: WhyVolumeGone}, true
	case v.Volume == nil:
		return v.end(WhyVolumeGone, change.PhaseFailed, change.ReasonVolumeNotFound,
			fmt.Sprintf("PersistentVolume %q does not exist", v.Change.Spec.VolumeName)), true
	case v.replaced():
		return v.end(WhyVolumeGone, change.PhaseFailed, change.ReasonVolumeReplaced,
			fmt.Sprintf("PersistentVolume %q was made anew since the change began; nothing was written to it", v.Volume.Name)), true
	}
	return Decision{}, false
}

// foreignEdit is the rule of a volume that somebody else has changed since the
// journal last spoke of it.
func foreignEdit(v *view) (Decision, bool) {
	if v.isBefore() || v.isAfter() {
		return Decision{}, false
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhyForeignEdit}, true
	}
	return v.end(WhyForeignEdit, change.PhaseFailed, change.ReasonForeignEdit, fmt.Sprintf(
		"Node affinity or zone labels of PersistentVolume %q were changed by somebody else; they are left as they are, make a new change from there", v.Volume.Name)), true
}

// kindChanged is the rule of nodes that were relabelled before the first write,
// so that it would no longer do what was planned.
func kindChanged(v *view) (Decision, bool) {
	j := v.journal()
	first := j.Stage == change.StageNarrowing || j.Stage == change.StageTarget && j.StorageMovedAt == nil
	if !first && j.Stage != change.StageBegun || v.isAfter() || v.route.kind == v.Change.Status.Kind {
		return Decision{}, false
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhyKindChanged}, true
	}
	return v.end(WhyKindChanged, change.PhaseFailed, change.ReasonKindChanged, fmt.Sprintf(
		"Nodes were relabelled: what was planned as %s would now be %s; nothing was written, make the change again", v.Change.Status.Kind, v.route.kind)), true
}

// givenUp is the rule of a change that its owner gave up, by its state or by
// deleting it.
func givenUp(v *view) (Decision, bool) {
	j := v.journal()
	if !v.aborted() || j.Stage == change.StageRestore {
		return Decision{}, false
	}
	switch {
	case v.Change.Status.Holder != "":
		// Whoever moves the storage has to say first how that ended.
		return v.wait(WhyGivenUp, change.PhaseStorageMoving, change.ReasonWaitingForStorage,
			fmt.Sprintf("Waiting for %q to say how moving the storage ended, then the old affinity is restored", v.Change.Status.Holder), nil), true
	case v.storageMoved() && (v.Change.Spec.Storage == change.StorageMovesAfterNarrowing || j.Stage == change.StageTarget && v.isAfter()):
		return Decision{}, false // only forward: the storage serves the target
	case j.StorageFailed == "" && v.classTouched():
		return v.failStorage("The change was aborted"), true
	case j.StorageFailed != "":
		return Decision{}, false // the class goes back first
	}
	return v.restore(WhyGivenUp), true
}

// paused is the rule of a change that rests.
func paused(v *view) (Decision, bool) {
	if v.Change.Spec.State != change.Paused || v.aborted() {
		return Decision{}, false
	}
	if v.journal().Stage == change.StageBegun || v.isAfter() {
		if d, ok := v.releaseMark(WhyPaused); ok {
			return d, true
		}
	}
	return v.wait(WhyPaused, change.PhasePaused, change.ReasonPaused,
		"Paused where it is; set spec.state to Active or to Aborted", nil), true
}

// refusedWrite is the rule of a change whose last write the API server refused.
func refusedWrite(v *view) (Decision, bool) {
	r := v.Refused
	left := refusedAgain - v.Now.Sub(r.At)
	if r.Reason == "" || left <= 0 || v.isAfter() {
		return Decision{}, false
	}
	if d, ok := v.releaseMark(WhyRefused); ok {
		return d, true
	}
	phase, message := change.PhaseBlocked, r.Message
	switch {
	case v.journal().Stage == change.StageRestore:
		phase = change.PhaseRestoreBlocked
		message = "The API server refuses to restore the old affinity, so the volume stays narrowed, which is safe: " + r.Message
	case r.Reason == change.ReasonGateDisabled:
		message = "The API server does not allow a volume's node affinity to be changed; enable its feature gate MutablePVNodeAffinity: " + r.Message
	}
	d := v.wait(WhyRefused, phase, r.Reason, message, nil)
	d.RequeueAfter = left
	return d, true
}

// unwritten is the rule of a write that the journal speaks of and that the
// volume does not show.
func unwritten(v *view) (Decision, bool) {
	j := v.journal()
	if j.Stage == change.StageBegun || v.isAfter() {
		return Decision{}, false
	}
	if v.needsFence() {
		if d, ok := v.fence(); ok {
			return d, true
		}
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhyWrite}, true
	}
	return Decision{Why: WhyWrite, Step: v.writeVolume()}, true
}

// unsettled is the rule of a volume that was narrowed, until nothing is outside
// any more.
func unsettled(v *view) (Decision, bool) {
	j := v.journal()
	if j.Stage == change.StageBegun || j.SettledAt != nil {
		return Decision{}, false
	}
	if j.WrittenAt == nil {
		return v.note(WhyWritten, func(j *change.Journal) {
			if j.WrittenAt = v.time(); !v.needsFence() {
				j.SettledAt = j.WrittenAt
			}
		}), true
	}
	if !v.drains() {
		if d, ok := v.releaseMark(WhyWritten); ok {
			return d, true
		}
	}
	patience := settleFence
	if v.Change.Status.SettledBy == change.SettledByWait {
		patience = settleWait
	}
	if left := patience - v.Now.Sub(j.WrittenAt.Time); left > 0 {
		return Decision{RequeueAfter: left, Why: WhySettling}, true
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhySettling}, true
	}
	if out := v.outsiders(v.after()); len(out) > 0 {
		if d, ok := v.evict(out); ok {
			return d, true
		}
		if v.intruded(out) && j.Stage != change.StageRestore {
			return v.restore(WhyIntruded), true
		}
		return v.wait(WhySettling, change.PhaseSettling, change.ReasonSettling, "The volume is narrowed; waiting: "+sentence(out), out), true
	}
	return v.note(WhySettled, func(j *change.Journal) { j.SettledAt = v.time() }), true
}

// last is the rule of the write of the target after the storage has moved.
func last(v *view) (Decision, bool) {
	j := v.journal()
	switch {
	case j.Stage == change.StageRestore:
		if d, ok := v.releaseMark(WhyRestored); ok {
			return d, true
		}
		if j.StorageFailed != "" {
			return v.end(WhyRestored, change.PhaseFailed, change.ReasonStorageFailed,
				"The storage did not move and the old affinity is restored: "+j.StorageFailed), true
		}
		return v.end(WhyRestored, change.PhaseAborted, change.ReasonAborted, "The old affinity is restored"), true
	case j.Stage == change.StageTarget || v.route.skipLast && j.Stage == change.StageNarrowing:
		return Decision{}, false
	}
	return v.stage(WhyTarget, change.StageTarget), true
}

// summary is what a change that succeeded says.
func (v *view) summary() string {
	_, gained, lost := Compare(v.from, v.to, v.Nodes)
	return fmt.Sprintf("PersistentVolume %q is reachable from its new nodes: %d gained, %d lost", v.Volume.Name, len(gained), len(lost))
}

// event types, in short.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
