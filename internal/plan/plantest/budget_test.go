package plantest_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// TestWriteBudget counts what a tiny population costs when nothing goes wrong:
// the steps, the worker's record, and the one event.
func TestWriteBudget(t *testing.T) {
	for _, sc := range []plantest.Scenario{
		{Name: "Immediate"},
		{Name: "WaitForFirstConsumer", WaitForConsumer: true},
		{Name: "Retain", Retain: true},
	} {
		t.Run(sc.Name, func(t *testing.T) {
			e := plantest.Explorer{Planner: populate.Next, Scenario: sc}
			steps, events := e.Straight()
			writes := len(events)
			for _, s := range steps {
				writes++
				if _, ok := s.(populate.CreateWorker); ok {
					writes++ // the record
				}
			}
			if writes > 9 {
				t.Errorf("got %d writes, want at most 9: %d steps, events %v", writes, len(steps), events)
			}
			if len(events) != 1 || events[0].Reason != "Populated" {
				t.Errorf("got events %v, want Populated alone", events)
			}
		})
	}
}
