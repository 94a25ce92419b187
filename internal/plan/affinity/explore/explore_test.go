package explore

import (
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

func in(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

func anyOf(terms ...corev1.NodeSelectorTerm) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

var (
	zones = []affinity.Node{
		{Name: "a", Labels: map[string]string{"zone": "a", "region": "r", "gen1": "yes"}, Alive: true},
		{Name: "b", Labels: map[string]string{"zone": "b", "region": "r", "gen2": "yes"}, Alive: true},
		{Name: "ab", Labels: map[string]string{"zone": "ab", "region": "r", "gen1": "yes", "gen2": "yes"}, Alive: true},
	}
	gen1, gen2 = anyOf(in("gen1", "yes")), anyOf(in("gen2", "yes"))
)

var settings = map[string]Setting{
	"MoveBetweenGenerations": {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"MoveTwoPods":            {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}, {Name: "q", Node: "ab"}}},
	"MoveBlocked":            {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}, {Name: "q", Node: "a"}}},
	"MoveEvicting":           {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, RunningPods: change.RunningPodsEvict, GateInForce: true, Pods: []pod{{Name: "p"}, {Name: "q", Node: "a"}}},
	"MoveByClass":            {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, Class: "new", GateInForce: true, Pods: []pod{{Name: "p"}}},
	"MoveInfeasible":         {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, Class: "new", Infeasible: true, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"MoveOffline":            {From: anyOf(in("zone", "a")), To: anyOf(in("zone", "b")), Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"Widen":                  {From: anyOf(in("zone", "a")), To: anyOf(in("region", "r")), Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"Narrow":                 {From: anyOf(in("region", "r")), To: anyOf(in("zone", "b")), Storage: change.StorageMovesAfterNarrowing, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"AlreadyMoved":           {From: gen1, To: gen2, Storage: change.StorageAlreadyMoved, GateInForce: true, Pods: []pod{{Name: "p"}}},
	"NoGate":                 {From: gen1, To: gen2, Storage: change.StorageMovesAfterNarrowing, Pods: []pod{{Name: "p"}}},
	"ToAny":                  {From: gen1, Storage: change.StorageAlreadyMoved, GateInForce: true, Pods: []pod{{Name: "p"}}},
}

func TestExplore(t *testing.T) {
	faults := knob(t, "SLUICE_EXPLORE_DISTURBANCES", 1)
	limit := knob(t, "SLUICE_EXPLORE_STATES", 400000)
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			s.Nodes = zones
			states, err := Walk(s, affinity.Next, faults, limit)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, invariants A1 A2 A3 A5 hold", states)
		})
	}
}

func knob(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
