package populator

import (
	"context"
	"sync"
	"time"
)

// A Journal is where a plugin notes its fills, so that they are found again after
// a crash and never begun twice. Replicas that share the work share a journal, or
// ask a storage that knows the fills itself.
//
// Put returns when the entry is on stable storage. Entries are small, of one
// writer per id at a time, and never put back to an earlier state. See
// [FileJournal] and [MemoryJournal].
type Journal interface {
	// Get returns the entry of an id, and false if there is none.
	Get(ctx context.Context, id string) (Entry, bool, error)
	// Put writes the entry of an id in place of an older one.
	Put(ctx context.Context, id string, e Entry) error
}

// Entry is what a journal knows of one fill.
type Entry struct {
	// Stage is how far the fill has come.
	Stage Stage `json:"stage"`
	// Time when the entry was put.
	Time time.Time `json:"time"`
	// Handle of the volume that is filled.
	Handle string `json:"handle,omitempty"`
	// Digest of a fill that succeeded.
	Digest string `json:"digest,omitempty"`
	// Progress of a fill that has ended.
	Progress Progress `json:"progress,omitzero"`
	// Reason, Message and Permanent are those of a fill that failed.
	Reason    Reason `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
}

// Stage is how far a fill has come.
type Stage string

// The stages, in their order.
const (
	// StageIntended: it is about to be started; whether it was is not known.
	StageIntended Stage = "Intended"
	// StageStarted: Filler.Start has returned.
	StageStarted Stage = "Started"
	// StageSucceeded and StageFailed: it has ended.
	StageSucceeded Stage = "Succeeded"
	StageFailed    Stage = "Failed"
	// StageCleaning: it is being cleaned up, and must not be started any more.
	StageCleaning Stage = "Cleaning"
	// StageCleaned: nothing is left. Kept for at least an hour, so that a start
	// that comes late is refused.
	StageCleaned Stage = "Cleaned"
)

// keepCleaned is for how long the entry of a fill that is cleaned up is kept; the
// contract asks for an hour.
const keepCleaned = 2 * time.Hour

// MemoryJournal keeps entries in memory. It is for tests, and for a storage that
// knows every fill itself, refuses a start after a clean-up included.
func MemoryJournal() Journal { return &memoryJournal{entries: map[string]Entry{}} }

type memoryJournal struct {
	mu      sync.Mutex
	entries map[string]Entry
	pruned  time.Time
}

func (j *memoryJournal) Get(_ context.Context, id string) (Entry, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[id]
	return e, ok, nil
}

func (j *memoryJournal) Put(_ context.Context, id string, e Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Time.Sub(j.pruned) > keepCleaned {
		j.pruned = e.Time
		for other, old := range j.entries {
			if old.Stage == StageCleaned && e.Time.Sub(old.Time) > keepCleaned {
				delete(j.entries, other)
			}
		}
	}
	j.entries[id] = e
	return nil
}
