package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/retry"
)

func TestDo(t *testing.T) {
	passing := mover.Retryable(worker.ReasonSourceUnreachable, errors.New("reset"))
	lasting := mover.Permanent(worker.ReasonSourceMissing, errors.New("gone"))
	cases := map[string]struct {
		reason string
		errs   []error // of each try; none after the last
		policy retry.Policy
		tries  int
		want   error
	}{
		"AtOnce":    {reason: "what works is done once", tries: 1},
		"Recovers":  {reason: "what passes is tried again", errs: []error{passing, passing}, tries: 3},
		"Permanent": {reason: "what stays is not", errs: []error{lasting, nil}, tries: 1, want: lasting},
		"Stopped":   {reason: "nor what the caller stops", errs: []error{retry.Stop(passing), nil}, tries: 1, want: passing},
		"After":     {reason: "a wait that was asked for is kept", errs: []error{retry.After(time.Millisecond, passing)}, tries: 2},
		"TooLong": {
			reason: "but not beyond the budget", errs: []error{retry.After(time.Hour, passing), nil}, tries: 1, want: passing,
		},
		"Budget": {
			reason: "the budget ends it", errs: []error{passing, nil}, tries: 1, want: passing,
			policy: retry.Policy{Budget: time.Nanosecond},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.policy.First == 0 {
				tc.policy.First = time.Microsecond
			}
			heard := 0
			tc.policy.Notify = func(err error, _ time.Duration) {
				heard++
				if !errors.Is(err, passing) || err.Error() != "reset" {
					t.Errorf("%s: notified of %v", tc.reason, err)
				}
			}
			tries := 0
			_, err := retry.Do(t.Context(), tc.policy, func(context.Context) (int, error) {
				tries++
				if tries <= len(tc.errs) {
					return 0, tc.errs[tries-1]
				}
				return 1, nil
			})
			if !errors.Is(err, tc.want) || tries != tc.tries || heard != tries-1 {
				t.Errorf("%s: %v after %d tries, notified %d times; want %v after %d", tc.reason, err, tries, heard, tc.want, tc.tries)
			}
			if err != nil {
				if reason, _ := mover.Classify(err); reason == worker.ReasonWorkerFailed {
					t.Errorf("%s: %v has lost its reason", tc.reason, err)
				}
			}
		})
	}
}

func TestDoStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	_, err := retry.Do(ctx, retry.Policy{First: time.Hour, Longest: time.Hour, Budget: 10 * time.Hour}, func(context.Context) (int, error) {
		cancel(stopped)
		return 0, errors.New("reset")
	})
	if !errors.Is(err, stopped) {
		t.Errorf("Do = %v, want %v", err, stopped)
	}
}
