package plantest_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// depthEnv sets how many disturbances a path may hold; all states within are
// visited then, which takes minutes for 1 and hours for 2.
const depthEnv = "SLUICE_EXPLORE_DISTURBANCES"

// walksEnv sets how many random walks are taken through each scenario.
const walksEnv = "SLUICE_EXPLORE_WALKS"

var scenarios = []plantest.Scenario{
	{Name: "Immediate"},
	{Name: "WaitForFirstConsumer", WaitForConsumer: true},
	{Name: "Retain", Retain: true},
	{Name: "FilledImmediately", Immediately: true},
	{Name: "LateSource", LateSource: true},
	{Name: "NameTaken", NameTaken: true},
	{Name: "AlwaysFails", AlwaysFails: true},
	{Name: "ForeignVolume", ForeignVolume: true},
}

func TestExplore(t *testing.T) {
	disturbances, limit := 1, 25000
	if testing.Short() {
		limit = 3000
	}
	if s := os.Getenv(depthEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", depthEnv, err)
		}
		disturbances, limit = n, 0
	}
	for _, name := range plantest.Invariants {
		t.Log(name)
	}
	states := 0
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			e := plantest.Explorer{Planner: populate.Next, Scenario: sc, Disturbances: disturbances, MaxStates: limit}
			r := e.Explore()
			states += r.States
			t.Logf("%d states, %d transitions, %d decisions, complete %t", r.States, r.Transitions, r.Decisions, r.Complete)
			if r.Violation != nil {
				t.Errorf("violation of %s", r.Violation)
			}
		})
	}
	t.Logf("%d states in all", states)
}

func TestWalk(t *testing.T) {
	walks := 60
	if s := os.Getenv(walksEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", walksEnv, err)
		}
		walks = n
	}
	states := 0
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			e := plantest.Explorer{Planner: populate.Next, Scenario: sc}
			r := e.Walk(1, walks, 150)
			states += r.States
			if r.Violation != nil {
				t.Errorf("violation of %s", r.Violation)
			}
		})
	}
	t.Logf("%d states in all", states)
}
