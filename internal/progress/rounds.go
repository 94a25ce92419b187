package progress

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Worker is a running worker.
type Worker struct {
	// UID of the Pod.
	UID types.UID
	// Claim is the UID of the claim that it works for.
	Claim types.UID
	// Namespace and Name of the Pod.
	Namespace, Name string
	// Started is when its container started.
	Started time.Time
}

// Rounds decides which log is read next. It reads no clock, and keeps nothing
// but the times of reads. The zero Rounds is ready.
type Rounds struct {
	last time.Time
	read map[types.UID]time.Time
}

// Next returns the worker whose log is to be read now, and counts it as read.
// If none is, it says how long none will be, as far as the workers given are
// concerned; 0 when there is none to read at all.
//
// The one that was not read for the longest time is next, and one that was
// never read counts from when it became old enough.
func (r *Rounds) Next(now time.Time, running []Worker) (next Worker, wait time.Duration, ok bool) {
	r.forget(running)
	var due time.Time
	for _, w := range running {
		at := w.Started.Add(MinAge)
		if read, known := r.read[w.UID]; known {
			at = read.Add(Every)
		}
		// A clock that was set back does not hold anything up for longer than
		// a round.
		if at.After(now.Add(max(Every, MinAge))) {
			at = now
		}
		if !ok || at.Before(due) {
			next, due, ok = w, at, true
		}
	}
	if !ok {
		return Worker{}, 0, false
	}
	if wait := due.Sub(now); wait > 0 {
		return Worker{}, wait, false
	}
	if since := now.Sub(r.last); since >= 0 && since < Spacing {
		return Worker{}, Spacing - since, false
	}
	r.last = now
	r.read[next.UID] = now
	return next, 0, true
}

// forget drops the times of workers that no longer run.
func (r *Rounds) forget(running []Worker) {
	if r.read == nil {
		r.read = map[types.UID]time.Time{}
	}
	if len(r.read) == 0 {
		return
	}
	runs := make(map[types.UID]bool, len(running))
	for _, w := range running {
		runs[w.UID] = true
	}
	for uid := range r.read {
		if !runs[uid] {
			delete(r.read, uid)
		}
	}
}
