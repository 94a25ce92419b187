package plantest_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// depthEnv sets how many disturbances a path may hold, statesEnv how many
// states of each scenario are visited at most, 0 for all. All states with one
// disturbance take minutes, all with two take hours.
const (
	depthEnv  = "SLUICE_EXPLORE_DISTURBANCES"
	statesEnv = "SLUICE_EXPLORE_STATES"
)

// walksEnv sets how many random walks are taken through each scenario.
const walksEnv = "SLUICE_EXPLORE_WALKS"

var scenarios = []plantest.Scenario{
	{Name: "Immediate"},
	{Name: "WaitForFirstConsumer", WaitForConsumer: true},
	{Name: "Retain", Retain: true},
	{Name: "FilledImmediately", Immediately: true},
	{Name: "LateSource", LateSource: true},
	{Name: "NameTaken", NameTaken: true},
	{Name: "ReadOnly", ReadOnly: true},
	{Name: "AlwaysFails", AlwaysFails: true},
	{Name: "ForeignVolume", ForeignVolume: true},
	{Name: "ForeignVolumeFilledImmediately", ForeignVolume: true, Immediately: true},
	{Name: "System", Placement: v1alpha1.PlacementSystem},
	{Name: "SystemAlwaysFails", Placement: v1alpha1.PlacementSystem, AlwaysFails: true},
	{Name: "Source", Placement: v1alpha1.PlacementSource, WaitForConsumer: true},
	{Name: "SourceRetain", Placement: v1alpha1.PlacementSource, Retain: true},
	{Name: "Doomed", Doomed: true},
	{Name: "DoomedForeignVolume", Doomed: true, ForeignVolume: true},
	{Name: "RootOwned", RootOwned: true},
	{Name: "RootOwnedFilledImmediately", RootOwned: true, Immediately: true},
	{Name: "Unreachable", Unreachable: true},
	{Name: "Crowded", Crowded: true},
	{Name: "CrowdedAlwaysFails", Crowded: true, AlwaysFails: true},
	{Name: "Plugin", Plugin: true},
	{Name: "PluginFails", Plugin: true, AlwaysFails: true},
	{Name: "PluginRetain", Plugin: true, Retain: true},
	{Name: "PluginForeignVolume", Plugin: true, ForeignVolume: true},
	{Name: "PluginUnreachable", Plugin: true, Unreachable: true},
	{Name: "PluginWaitForFirstConsumer", Plugin: true, WaitForConsumer: true},
}

func TestExplore(t *testing.T) {
	// Most of what is allocated lives as long as the exploration.
	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	disturbances := setting(t, depthEnv, 1)
	limit := setting(t, statesEnv, 20000)
	for _, name := range plantest.Invariants {
		t.Log(name)
	}
	var states atomic.Int64
	t.Cleanup(func() { t.Logf("%d states in all", states.Load()) })
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			e := plantest.Explorer{Planner: populate.Next, Scenario: sc, Disturbances: disturbances, MaxStates: limit}
			r := e.Explore()
			states.Add(int64(r.States))
			t.Logf("%d states, %d transitions, %d decisions, complete %t", r.States, r.Transitions, r.Decisions, r.Complete)
			if r.Violation != nil {
				t.Errorf("violation of %s", r.Violation)
			}
		})
	}
}

func TestWalk(t *testing.T) {
	walks := setting(t, walksEnv, 60)
	var states atomic.Int64
	t.Cleanup(func() { t.Logf("%d states in all", states.Load()) })
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			e := plantest.Explorer{Planner: populate.Next, Scenario: sc}
			r := e.Walk(1, walks, 150)
			states.Add(int64(r.States))
			if r.Violation != nil {
				t.Errorf("violation of %s", r.Violation)
			}
		})
	}
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
