package plantest

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// Explorer explores one scenario.
type Explorer struct {
	// Planner is what is tried.
	Planner Planner
	// Scenario is the world it is tried in.
	Scenario Scenario
	// Disturbances bounds how many of them one path holds.
	Disturbances int
	// Only, if set, limits disturbances to those whose name begins with one of
	// these.
	Only []string
	// MaxStates ends the exploration early; 0 is no bound.
	MaxStates int

	class     *storagev1.StorageClass
	decisions int
	rests     map[uint64]bool
}

// Result is what an exploration found.
type Result struct {
	// States and Transitions that were visited, and Decisions taken.
	States, Transitions, Decisions int
	// Complete says that every state within the bound was visited.
	Complete bool
	// Violation is the first breach of an invariant, nil if there is none.
	Violation *Violation
}

// Violation is a breach and how to get there.
type Violation struct {
	Invariant string
	Trace     []string
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s\n\t%s", v.Invariant, strings.Join(v.Trace, "\n\t"))
}

// node is one visited state: how it was reached.
type node struct {
	parent int
	name   string
}

// Explore visits the states breadth first, the fewest disturbances first, and
// stops at the first violation: its trace is among the simplest there are.
func (e *Explorer) Explore() Result {
	e.start()
	var r Result
	nodes := []node{{parent: -1, name: e.Scenario.Name}}
	type visit struct {
		s  *state
		at int
	}
	first := newState(&e.Scenario, e.Disturbances)
	seen := map[uint64]bool{first.key(true): true}
	// One queue for each number of disturbances left.
	queues := make([][]visit, e.Disturbances+1)
	queues[e.Disturbances] = []visit{{first, 0}}
	trace := func(at int, more ...string) []string {
		var out []string
		for ; at >= 0; at = nodes[at].parent {
			out = append([]string{nodes[at].name}, out...)
		}
		return append(out, more...)
	}
	for left := e.Disturbances; left >= 0; left-- {
		for len(queues[left]) > 0 {
			v := queues[left][0]
			queues[left] = queues[left][1:]
			r.States++
			if e.MaxStates > 0 && r.States > e.MaxStates {
				r.Decisions = e.decisions
				return r
			}
			if why, how := e.settles(v.s); why != "" {
				r.Violation = &Violation{Invariant: why, Trace: trace(v.at, append([]string{"-- disturbances stop --"}, how...)...)}
				r.Decisions = e.decisions
				return r
			}
			for _, a := range e.actions(v.s) {
				n := v.s.clone()
				n.left -= a.cost
				a.do(n)
				r.Transitions++
				k := n.key(true)
				if n.violation == "" && seen[k] {
					continue
				}
				seen[k] = true
				nodes = append(nodes, node{parent: v.at, name: a.name})
				if why := n.check(); why != "" {
					r.Violation = &Violation{Invariant: why, Trace: trace(len(nodes) - 1)}
					r.Decisions = e.decisions
					return r
				}
				queues[n.left] = append(queues[n.left], visit{n, len(nodes) - 1})
			}
		}
	}
	r.Complete, r.Decisions = true, e.decisions
	return r
}

func (e *Explorer) start() {
	e.class = e.Scenario.class()
	e.rests = map[uint64]bool{}
	e.decisions = 0
}

// actions are all that may happen in a state.
func (e *Explorer) actions(s *state) []action {
	out := append(e.managerActions(s), s.kubernetes()...)
	out = append(out, s.recoveries()...)
	out = append(out, s.users()...)
	out = append(out, s.failures()...)
	affordable := out[:0]
	for _, a := range out {
		if a.cost <= s.left && (a.cost == 0 || e.Only == nil || slices.ContainsFunc(e.Only, func(p string) bool { return strings.HasPrefix(a.name, p) })) {
			affordable = append(affordable, a)
		}
	}
	return affordable
}

// How long a cluster may take to come to rest.
const (
	restRounds  = 300
	hotDecision = 30
)

// settles lets everybody act in turn without disturbances, and says why the
// cluster does not come to rest well; empty when it does.
func (e *Explorer) settles(s *state) (why string, how []string) {
	s = s.clone()
	s.left, s.slow = 0, true
	var path []uint64
	writes := 0
	for round := range restRounds {
		k := s.key(false)
		if e.rests[k] {
			break
		}
		path = append(path, k)
		if why := s.check(); why != "" {
			return why, how
		}
		a, wait := e.turn(s, round)
		if a == nil {
			if why := s.unrest(); why == "" {
				if why := e.quiet(s); why != "" {
					return why, how
				}
				break
			} else if wait == 0 {
				return why, how
			}
			a = wait.action()
			writes = 0
		}
		if strings.HasPrefix(a.name, "manager") {
			if writes++; writes > hotDecision {
				return "F7: the manager writes without end", how
			}
		} else {
			writes = 0
		}
		how = append(how, a.name)
		a.do(s)
		if round == restRounds-1 {
			return "F4: the cluster does not come to rest", how
		}
	}
	for _, k := range path {
		e.rests[k] = true
	}
	return "", nil
}
