package progress_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/progress"
)

var start = time.Unix(1_000_000, 0)

func workers(n int, started time.Time) []progress.Worker {
	all := make([]progress.Worker, n)
	for i := range all {
		all[i] = progress.Worker{UID: types.UID(fmt.Sprintf("w%d", i)), Name: fmt.Sprintf("w%d", i), Started: started}
	}
	return all
}

// reads lets the rounds run for some time, as fast as they allow, and returns
// when each worker was read.
func reads(t *testing.T, r *progress.Rounds, from time.Time, d time.Duration, running func(time.Time) []progress.Worker) map[types.UID][]time.Time {
	t.Helper()
	all := map[types.UID][]time.Time{}
	now := from
	for now.Sub(from) < d {
		w, wait, ok := r.Next(now, running(now))
		if ok {
			all[w.UID] = append(all[w.UID], now)
			continue
		}
		if wait <= 0 {
			wait = time.Second
		}
		now = now.Add(wait)
	}
	return all
}

func TestEveryWorkerIsReadInItsTurn(t *testing.T) {
	const d = time.Minute
	for _, n := range []int{1, 20, 100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			all := workers(n, start.Add(-time.Hour))
			got := reads(t, &progress.Rounds{}, start, d, func(time.Time) []progress.Worker { return all })
			if len(got) != n {
				t.Fatalf("%d of %d workers were read", len(got), n)
			}
			// As often as one may be read, or as often as all may be.
			every := max(progress.Every, time.Duration(n)*progress.Spacing)
			total := 0
			for uid, times := range got {
				total += len(times)
				for i := 1; i < len(times); i++ {
					if gap := times[i].Sub(times[i-1]); gap < progress.Every || gap > every+progress.Spacing {
						t.Errorf("%s was read again after %s, want %s", uid, gap, every)
					}
				}
			}
			if limit := int(d/progress.Spacing) + 1; total > limit {
				t.Errorf("%d reads in %s, want at most %d", total, d, limit)
			}
		})
	}
}

func TestYoungWorkersAreLeftAlone(t *testing.T) {
	all := workers(1, start)
	got := reads(t, &progress.Rounds{}, start, 7*time.Second, func(time.Time) []progress.Worker { return all })
	if times := got["w0"]; len(times) != 1 || times[0].Sub(start) < progress.MinAge {
		t.Errorf("read at %v, want once after %s", times, progress.MinAge)
	}
}

// TestNewcomersStarveNobody shows that a stream of new workers does not keep
// old ones from being read.
func TestNewcomersStarveNobody(t *testing.T) {
	old := workers(1, start.Add(-time.Hour))
	i := 0
	got := reads(t, &progress.Rounds{}, start, time.Minute, func(now time.Time) []progress.Worker {
		i++
		all := append([]progress.Worker{}, old...)
		for j := range 50 {
			all = append(all, progress.Worker{UID: types.UID(fmt.Sprintf("new-%d-%d", i, j)), Started: now.Add(-progress.MinAge)})
		}
		return all
	})
	if n := len(got["w0"]); n < 10 {
		t.Errorf("the old worker was read %d times in a minute", n)
	}
}

func TestClockSetBack(t *testing.T) {
	r := &progress.Rounds{}
	all := workers(1, start.Add(-time.Hour))
	if _, _, ok := r.Next(start, all); !ok {
		t.Fatal("the worker is not due")
	}
	back := start.Add(-24 * time.Hour)
	got := reads(t, r, back, 15*time.Second, func(time.Time) []progress.Worker { return all })
	if len(got["w0"]) < 2 {
		t.Errorf("read at %v after the clock was set back", got["w0"])
	}
}

func TestNobodyRuns(t *testing.T) {
	if _, wait, ok := (&progress.Rounds{}).Next(start, nil); ok || wait != 0 {
		t.Errorf("got %s, %t; want nothing to do", wait, ok)
	}
}
