package populator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// FillFunc fills one volume and returns when it is done. What it returns is the
// fill's end: the digest of the data, if there is one, or an error, which may
// have a [Reason] and be [Permanent]. An error without either is tried again on
// another volume.
//
// report tells progress; it is cheap and may be called often. When the context
// ends, the fill is not wanted any more or the plugin stops: the function returns
// soon, and nothing of it writes to the volume any more when it has.
type FillFunc[S any] func(ctx context.Context, f Fill[S], report func(Progress)) (digest string, err error)

// Background makes a Filler of a function that runs in this process, in a
// goroutine for each fill and at most limit at a time; what is more waits its
// turn, and no attempt is lost. Cleaning up cancels a function that runs and
// waits for its end. A fill that the process takes with it when it ends has
// failed, and is tried again on another volume.
//
// Since the work lives in one process, the plugin runs as one replica, or each
// volume's storage is reached from one replica only; its journal is on a disk that
// outlives the process. For work that others do, such as a storage's own copy
// jobs, write a [Filler].
func Background[S any](limit int, fill FillFunc[S]) Filler[S] {
	if limit < 1 || fill == nil {
		panic("populator: Background needs a limit of at least 1 and a function")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &background[S]{fill: fill, slots: make(chan struct{}, limit), ctx: ctx, cancelAll: cancel, jobs: map[string]*job{}}
}

// background is the Filler of a FillFunc.
type background[S any] struct {
	fill  FillFunc[S]
	slots chan struct{}
	// ctx ends with the server that the filler belongs to.
	ctx       context.Context
	cancelAll context.CancelCauseFunc

	mu    sync.Mutex
	jobs  map[string]*job
	log   *slog.Logger
	ended func(FillRef, Status)
}

// job is a fill that runs or has run in this process.
type job struct {
	cancel context.CancelCauseFunc
	// done is closed when the function has returned, noted when its end is in the
	// journal as well.
	done, noted chan struct{}

	mu     sync.Mutex
	status Status
}

// attach connects the filler to the server that serves it.
func (b *background[S]) attach(log *slog.Logger, ended func(FillRef, Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log, b.ended = log, ended
}

var (
	errStopping  = errors.New("the plugin is being stopped")
	errCancelled = errors.New("the fill was cancelled")
)

// reserve takes a slot for the function that Start begins. release gives it back
// if Start did not.
func (b *background[S]) reserve(id string) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, Unavailable(errStopping)
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return nil, Busy(fmt.Errorf("%d fills run already", cap(b.slots)))
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.jobs[id] == nil {
			<-b.slots
		}
	}, nil
}

// Start begins the function, in a slot that was reserved for it.
func (b *background[S]) Start(_ context.Context, f Fill[S]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithCancelCause(b.ctx)
	j := &job{cancel: cancel, done: make(chan struct{}), noted: make(chan struct{})}
	b.jobs[f.ID] = j
	go b.run(ctx, j, f)
	return nil
}

func (b *background[S]) run(ctx context.Context, j *job, f Fill[S]) {
	defer func() { <-b.slots; close(j.noted) }()
	digest, err := b.call(ctx, f, j.report)
	end := Status{State: Succeeded, Digest: digest}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !isFailure(err) {
			err = cause
		}
		end = Status{State: Failed, Err: err}
	}
	j.mu.Lock()
	end.Progress = j.status.Progress
	j.status = end
	j.mu.Unlock()
	j.cancel(nil)
	close(j.done)
	b.ended(FillRef{ID: f.ID, Volume: f.Volume}, end)
}

// call runs the function and survives its panic.
func (b *background[S]) call(ctx context.Context, f Fill[S], report func(Progress)) (digest string, err error) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic while filling", "fill", f.ID, "panic", p, "stack", string(debug.Stack()))
			err = errors.New("the plugin panicked while it filled")
		}
	}()
	return b.fill(ctx, f, report)
}

func (j *job) report(p Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Progress.BytesDone = max(j.status.Progress.BytesDone, p.BytesDone)
	j.status.Progress.BytesTotal = p.BytesTotal
}

// askAgain is when to ask for a function's progress: it costs nothing.
const askAgain = 2 * time.Second

// Status tells how far the function is.
func (b *background[S]) Status(_ context.Context, ref FillRef) (Status, error) {
	b.mu.Lock()
	j := b.jobs[ref.ID]
	b.mu.Unlock()
	if j == nil {
		return Status{}, ErrUnknownFill
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	if s.State == Running {
		s.RetryAfter = askAgain
	}
	return s, nil
}

// cancelWait is how long a clean-up waits for a function to end before it says
// that it has not.
const cancelWait = 2 * time.Second

// cancel ends a function that runs.
func (b *background[S]) cancel(ctx context.Context, id string) error {
	b.mu.Lock()
	j := b.jobs[id]
	b.mu.Unlock()
	if j == nil {
		return nil
	}
	j.cancel(errCancelled)
	timer := time.NewTimer(cancelWait)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		return NotYet(askAgain, "the fill is being cancelled")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	delete(b.jobs, id)
	b.mu.Unlock()
	return nil
}

// stop cancels all functions and waits until their ends are noted.
func (b *background[S]) stop(ctx context.Context) {
	b.cancelAll(errStopping)
	b.mu.Lock()
	running := make([]*job, 0, len(b.jobs))
	for _, j := range b.jobs {
		running = append(running, j)
	}
	b.mu.Unlock()
	for _, j := range running {
		select {
		case <-j.noted:
		case <-ctx.Done():
			return
		}
	}
}
