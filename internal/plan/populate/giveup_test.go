package populate_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// TestPrimeThatWaitsForItsPlugin is about a deleted prime whose plugin may be at
// work: it goes when the plugin is done, or was asked and stays silent for long.
func TestPrimeThatWaitsForItsPlugin(t *testing.T) {
	const asks, goes, waits = "populate.CallPlugin", "populate.ReleasePrime", "<nil>"
	silent := populate.Answer{Unavailable: "connection refused", Reason: v1alpha1.ReasonPluginUnavailable, At: now.Add(-time.Second), RetryAfter: 10 * time.Second}
	cases := map[string]struct {
		reason string
		since  time.Duration
		answer *populate.Answer
		want   string
		warns  bool
	}{
		"NotAsked":          {reason: "The plugin is told that it is over", since: time.Second, want: asks},
		"Silent":            {reason: "Its volume is not taken from a plugin that is away for a moment", since: time.Minute, answer: &silent, want: waits},
		"SilentForLong":     {reason: "Nobody waits for ever", since: 11 * time.Minute, answer: &silent, want: goes, warns: true},
		"DoneLate":          {reason: "There is nothing to warn of", since: 11 * time.Minute, answer: &populate.Answer{Done: true, At: now}, want: goes},
		"NotAskedForLong":   {reason: "A manager that was away has yet to ask", since: 11 * time.Minute, want: asks},
		"NotAskedClockSet":  {reason: "A clock that was set back says nothing about how long it took", since: -time.Hour, want: asks},
		"StillBeingAsked":   {reason: "The call is bounded, and its end is near", since: 11 * time.Minute, answer: &populate.Answer{Pending: true, At: now}, want: waits},
		"SilentAndClockSet": {reason: "What was asked once and stays silent must not hold up anything for ever", since: -time.Hour, answer: &silent, want: goes, warns: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed(live, population(1), prime(primeBound, func(p *corev1.PersistentVolumeClaim) {
				p.DeletionTimestamp, p.Finalizers = ptr.To(at(tc.since)), []string{v1alpha1.FinalizerPlugin}
			}), volume(), func(o *populate.Observed) { o.Claim = nil })
			if tc.answer != nil {
				a := *tc.answer
				a.Call, a.ID = populate.CallCleanup, string(o.Primes[0].UID)
				o.Answers = []populate.Answer{a}
			}
			d := populate.Next(o)
			if got := fmt.Sprintf("%T", d.Step); got != tc.want {
				t.Errorf("%s: got %s (%s), want %s", tc.reason, got, d.Why, tc.want)
			}
			if warns := d.Event != nil; warns != tc.warns {
				t.Errorf("%s: told %v, want a warning: %t", tc.reason, d.Event, tc.warns)
			}
			if d.Step == nil && d.RequeueAfter <= 0 {
				t.Errorf("%s: never looks again", tc.reason)
			}
		})
	}
}
