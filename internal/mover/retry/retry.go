// Package retry is the one place where movers try again. Whoever knows an
// operation marks its errors (see mover.Permanent, Stop and After); how often
// and how long is a Policy's matter.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/sluice-dev/sluice/internal/mover"
)

// Policy says how long to go on. The zero value is usable.
type Policy struct {
	// Budget is how long an operation may go on failing. Default 2 minutes.
	Budget time.Duration
	// First and Longest wait between two tries. Defaults 500 ms and 15 s.
	First, Longest time.Duration
	// Notify hears every failure that is followed by another try, and the wait
	// before that.
	Notify func(err error, wait time.Duration)
}

// Do runs operation until it succeeds, fails for good, or the budget is spent;
// the error is then the last one. A wait that a server asked for (see After) is
// kept, unless it is longer than what is left of the budget.
func Do[T any](ctx context.Context, p Policy, operation func(context.Context) (T, error)) (T, error) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval = orDefault(p.First, 500*time.Millisecond)
	waits.MaxInterval = orDefault(p.Longest, 15*time.Second)
	options := []backoff.RetryOption{
		backoff.WithBackOff(waits),
		backoff.WithMaxElapsedTime(orDefault(p.Budget, 2*time.Minute)),
	}
	if p.Notify != nil {
		options = append(options, backoff.WithNotify(func(err error, wait time.Duration) { p.Notify(plain(err), wait) }))
	}
	out, err := backoff.Retry(ctx, func() (T, error) {
		out, err := operation(ctx)
		return out, translate(err)
	}, options...)
	return out, plain(err)
}

// Stop marks an error that is not worth another try here and now, although
// another attempt may fare better.
func Stop(err error) error { return &stop{err} }

// After marks an error with the wait that the other side asked for.
func After(wait time.Duration, err error) error { return &after{wait: wait, err: err} }

type stop struct{ err error }

// Error returns the text of the failure alone.
func (s *stop) Error() string { return s.err.Error() }

// Unwrap returns the failure.
func (s *stop) Unwrap() error { return s.err }

type after struct {
	wait time.Duration
	err  error
}

// Error returns the text of the failure alone.
func (a *after) Error() string { return a.err.Error() }

// Unwrap returns the failure.
func (a *after) Unwrap() error { return a.err }

// marked carries an error through backoff together with backoff's own mark,
// whose text says nothing about the failure.
type marked struct{ err, mark error }

// Error returns the text of the failure alone.
func (m *marked) Error() string { return m.err.Error() }

// Unwrap returns both.
func (m *marked) Unwrap() []error { return []error{m.mark, m.err} }

// translate says to backoff what an error's marks say to us.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if _, permanent := mover.Classify(err); permanent {
		return backoff.Permanent(err)
	}
	if _, ok := errors.AsType[*stop](err); ok {
		return backoff.Permanent(err)
	}
	if a, ok := errors.AsType[*after](err); ok {
		return &marked{err: err, mark: &backoff.RetryAfterError{Duration: a.wait}}
	}
	return err
}

// plain takes backoff's marks off again.
func plain(err error) error {
	if m, ok := errors.AsType[*marked](err); ok {
		return m.err
	}
	return err
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
