package clustertest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// look is how often a condition is looked at that no watch reports.
const look = 100 * time.Millisecond

// Until looks at a condition until it holds, fails or ctx ends.
func Until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(look / 2)
	defer tick.Stop()
	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Eventually calls check until it returns nil, and fails the test with its last
// answer if it does not in time.
func Eventually(t testing.TB, what string, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := errors.New("not looked at yet")
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err // an answer, and not just the end of waiting
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, within, last)
		case <-tick.C:
		}
	}
}
