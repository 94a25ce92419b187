// Package runner runs one copy from a source to a sink: what is left of a
// worker once it knows where to read and where to write.
package runner

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// Run resolves the source, copies it into the sink, makes it durable and
// checks the outcome against the revision. The error carries its reason: see
// mover.Classify.
func Run(ctx context.Context, from mover.Source, to mover.Sink, p mover.Progress) (worker.Result, error) {
	revision, err := from.Resolve(ctx)
	if err != nil {
		return worker.Result{}, fmt.Errorf("resolve source: %w", err)
	}
	if err := from.Copy(ctx, mover.Counted(to, revision.Bytes, p)); err != nil {
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
