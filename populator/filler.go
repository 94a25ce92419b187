package populator

import (
	"context"
	"time"
)

// A Filler has the storage fill volumes: the work goes on there, and is found
// again by its id. For work that is a function in this program, see [Background].
//
// Start begins to fill and returns without waiting for it. Nothing has been
// written to the volume before. It is not called for a fill that Status knows,
// and never twice at the same time for one id; but after an error, or a crash,
// it is called again with the same id and must then not begin a second time, so
// the id belongs into the name or the tags of whatever it makes. An error with a
// [Reason] or marked [Permanent] is the fill's end; one marked [Busy] says that
// there is enough to do, one marked [Unavailable] that nothing was begun; after any
// other, Status is asked whether it was.
//
// Status tells how far a fill is. It returns [ErrUnknownFill] where the storage
// knows no such fill. It may be asked about any id, also by another replica of
// the plugin than the one that started it. Any other error says nothing about the
// fill; the call is repeated.
type Filler[S any] interface {
	Start(ctx context.Context, f Fill[S]) error
	Status(ctx context.Context, f FillRef) (Status, error)
}

// FillerFuncs is a Filler of two functions. Both are required.
type FillerFuncs[S any] struct {
	StartFunc  func(ctx context.Context, f Fill[S]) error
	StatusFunc func(ctx context.Context, f FillRef) (Status, error)
}

// Start calls StartFunc.
func (f FillerFuncs[S]) Start(ctx context.Context, fill Fill[S]) error { return f.StartFunc(ctx, fill) }

// Status calls StatusFunc.
func (f FillerFuncs[S]) Status(ctx context.Context, ref FillRef) (Status, error) {
	return f.StatusFunc(ctx, ref)
}

// A Cleaner ends fills for good. Cleanup is called for every fill, however it
// ended, and also for fills that never began: what still runs is cancelled, and
// what was set up for it, such as exports, snapshots or credentials, is removed.
// It returns nil when nothing of the fill is left and nothing of it writes to the
// volume any more, and [NotYet] while something does. [ErrUnknownFill] counts as
// nil; after any other error the call is repeated. The volume itself is not to be
// touched.
//
// A Filler without a Cleaner is of a storage that ends by itself and keeps
// nothing; Sluice then waits for the fill's end before it lets the volume go.
type Cleaner interface {
	Cleanup(ctx context.Context, f FillRef, handedOver bool) error
}

// CleanerFunc is a function that is a Cleaner. handedOver says that the volume is
// the claim's now and may be in use; otherwise it is going to be deleted.
type CleanerFunc func(ctx context.Context, f FillRef, handedOver bool) error

// Cleanup calls the function.
func (f CleanerFunc) Cleanup(ctx context.Context, ref FillRef, handedOver bool) error {
	return f(ctx, ref, handedOver)
}

// Fill is one attempt at filling one volume.
type Fill[S any] struct {
	Request[S]
	// ID names the fill. It is never used for another one.
	ID string
	// Attempt is the number of the attempt at this claim, from 1.
	Attempt int
}

// FillRef names a fill that may have been started.
type FillRef struct {
	// ID is that of the Fill.
	ID string
	// Volume is that of the Fill. In a Cleanup it is empty if the volume does
	// not exist any more.
	Volume Volume
}

// State is where a fill is.
type State int

// The states of a fill. The last two are final.
const (
	// Running: accepted, waiting or writing.
	Running State = iota
	// Succeeded: the volume holds what the source says, all of it is on stable
	// storage, and nothing writes any more. The claim is bound on this word.
	Succeeded
	// Failed: nothing writes any more, and Status.Err says why.
	Failed
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Running:
		return "Running"
	case Succeeded:
		return "Succeeded"
	case Failed:
		return "Failed"
	}
	return "Unknown"
}

// Progress is how much of a volume is filled.
type Progress struct {
	// BytesDone are written. It does not go backwards.
	BytesDone int64 `json:"bytesDone,omitempty"`
	// BytesTotal are to be written; 0 if nobody knows.
	BytesTotal int64 `json:"bytesTotal,omitempty"`
}

// Status is how far a fill is.
type Status struct {
	State State
	// Progress is shown while the fill runs. Optional.
	Progress Progress
	// Message is one sentence on what a fill that runs does or waits for,
	// without figures. Optional.
	Message string
	// RetryAfter is when to ask again about a fill that runs: 5 s if 0.
	RetryAfter time.Duration
	// Digest of the data of a fill that succeeded, as algorithm:hex. Optional.
	Digest string
	// Err is why a fill failed. It may have a [Reason] and be [Permanent].
	Err error
}
