// Package event tells on a claim what happens to it, where kubectl describe
// shows it. It knows how to say things, not when: that is decided by the
// planner, once per change of reason.
package event

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Controller is the reporting controller of events about claims.
const Controller = "sluice.dev/population"

// action is what the manager was about, in every event about a claim.
const action = "Populate"

// maxNote is the longest note that the API takes.
const maxNote = 1024

// Recorder tells events on claims. It returns at once; events are sent in the
// background and may be lost, which is why nothing but people relies on them.
type Recorder struct{ to events.EventRecorder }

// New returns a Recorder.
func New(to events.EventRecorder) *Recorder { return &Recorder{to: to} }

// Tell tells one event on a claim.
func (r *Recorder) Tell(claim *corev1.PersistentVolumeClaim, e populate.Event) {
	r.to.Eventf(claim, nil, e.Type, e.Reason, action, "%s", note(e.Message))
}

// note makes a message fit: it may contain text of workers and drivers.
func note(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxNote {
		return s
	}
	return strings.ToValidUTF8(s[:maxNote-3], "") + "..."
}

// Time is when an event last happened, in whichever of the API's ways its
// writer said so.
func Time(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
