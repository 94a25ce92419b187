// Package runner runs one copy from a source to a sink: what is left of a
// worker once it knows where to read and where to write.
package runner

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// Options of a run; the zero value is usable.
type Options struct {
	// Progress hears how far the copy is. Default: nobody.
	Progress mover.Progress
	// ContinueIfMissing makes a source that has nothing (SourceMissing,
	// SourceEmpty) a success: the volume stays empty, and the result says why.
	// A source that cannot be reached is never taken for one that has nothing.
	ContinueIfMissing bool
}

// Run resolves the source, copies it into the sink, makes it durable and
// checks the outcome against the revision. The error carries its reason: see
// mover.Classify.
func Run(ctx context.Context, from mover.Source, to mover.Sink, opts Options) (worker.Result, error) {
	watched := &touched{Sink: to}
	done, err := run(ctx, from, to, watched, opts)
	if err == nil || !opts.ContinueIfMissing || watched.put || ctx.Err() != nil {
		return done, err
	}
	reason, _ := mover.Classify(err)
	if reason != worker.ReasonSourceMissing && reason != worker.ReasonSourceEmpty {
		return done, err
	}
	if _, err := to.Finish(ctx); err != nil {
		return worker.Result{}, fmt.Errorf("finish empty volume: %w", err)
	}
	return worker.Result{Reason: reason, Message: "The volume stays empty, as onMissing says: " + err.Error()}, nil
}

func run(ctx context.Context, from mover.Source, to mover.Sink, watched *touched, opts Options) (worker.Result, error) {
	revision, err := from.Resolve(ctx)
	if err != nil {
		return worker.Result{}, fmt.Errorf("resolve source: %w", err)
	}
	if err := roomFor(revision, to); err != nil {
		return worker.Result{}, err
	}
	if err := from.Copy(ctx, reported(from, watched, revision, opts.Progress)); err != nil {
		return worker.Result{}, fmt.Errorf("copy source: %w", err)
	}
	summary, err := to.Finish(ctx)
	if err != nil {
		return worker.Result{}, fmt.Errorf("finish volume: %w", err)
	}
	if err := check(revision, summary); err != nil {
		return worker.Result{}, fmt.Errorf("check volume: %w", err)
	}
	return worker.Result{Bytes: summary.Bytes, Files: summary.Files, Digest: summary.Digest}, nil
}

// touched is a sink that remembers whether anything was put into it.
type touched struct {
	mover.Sink
	put bool
}

// Put implements mover.Sink.
func (t *touched) Put(ctx context.Context, e mover.Entry, data io.Reader) error {
	err := t.Sink.Put(ctx, e, data)
	if err == nil {
		t.put = true
	}
	return err //nolint:wrapcheck // a decorator
}

// reported decorates a sink with reports of progress.
func reported(from mover.Source, to mover.Sink, r mover.Revision, p mover.Progress) mover.Sink {
	if p == nil {
		p = mover.NoProgress
	}
	if m, ok := from.(mover.Meter); ok && r.Transfer > 0 {
		return mover.Metered(to, r.Transfer, m, p)
	}
	return mover.Counted(to, r.Bytes, p)
}

// roomFor refuses early what cannot fit.
func roomFor(r mover.Revision, to mover.Sink) error {
	v, ok := to.(mover.Volume)
	if !ok || r.Room == 0 {
		return nil
	}
	free, err := v.Free()
	if err != nil {
		return fmt.Errorf("measure volume: %w", err)
	}
	if r.Room > free {
		return mover.Permanent(worker.ReasonVolumeTooSmall,
			fmt.Errorf("the source has %d bytes and the volume has room for %d: create the claim anew with a larger request", r.Room, free))
	}
	return nil
}

// check holds what was written to what the source announced.
func check(want mover.Revision, got mover.Summary) error {
	switch {
	case want.Files > 0 && got.Files != want.Files:
		return mover.Retryable(worker.ReasonTruncated, fmt.Errorf("%d files written, %d announced", got.Files, want.Files))
	case want.Bytes > 0 && got.Bytes != want.Bytes:
		return mover.Retryable(worker.ReasonTruncated, fmt.Errorf("%d bytes written, %d announced", got.Bytes, want.Bytes))
	case want.Digest != "" && got.Digest != "" && !strings.EqualFold(want.Digest, got.Digest):
		return mover.Permanent(worker.ReasonDigestMismatch, fmt.Errorf("digest is %s, want %s", got.Digest, want.Digest))
	default:
		return nil
	}
}

// Result returns what a worker leaves as its termination message for the
// outcome of Run, and the code it exits with.
func Result(ctx context.Context, done worker.Result, err error) (worker.Result, int) {
	if err == nil {
		return done, worker.ExitOK
	}
	if cause := context.Cause(ctx); cause != nil {
		return worker.Result{Reason: worker.ReasonWorkerFailed, Message: "stopped before it had finished: " + cause.Error()}, worker.ExitStopped
	}
	reason, permanent := mover.Classify(err)
	code := worker.ExitFailed
	if permanent {
		code = worker.ExitPermanent
	}
	return worker.Result{Reason: reason, Message: err.Error(), Permanent: permanent}, code
}
