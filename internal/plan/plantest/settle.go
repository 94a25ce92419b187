package plantest

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// patience is how long the manager asks to be left alone.
type patience time.Duration

func (p patience) action() *action {
	return &action{name: fmt.Sprintf("%s pass", time.Duration(p)), do: func(s *state) { s.pass(time.Duration(p)) }}
}

// turn is what happens next when all is well: what was late arrives, then the
// manager acts, then Kubernetes, each of its controllers in turn, then users
// who make what is missing. It returns how long the manager waits otherwise.
func (e *Explorer) turn(s *state, round int) (*action, patience) {
	if out := s.recoveries(); len(out) > 0 {
		return &out[0], 0
	}
	var wait patience
	for _, uid := range s.claimUIDs() {
		d := e.decide(s, uid)
		if d.Step != nil {
			return &action{name: "manager: " + stepName(d.Step) + " (" + d.Why + ")", do: func(s *state) { s.carryOut(d, uid) }}, 0
		}
		if d.RequeueAfter > 0 && (wait == 0 || patience(d.RequeueAfter) < wait) {
			wait = patience(d.RequeueAfter)
		}
	}
	if out := s.kubernetes(); len(out) > 0 {
		return &out[round%len(out)], 0
	}
	for _, a := range s.users() {
		if a.cost == 0 {
			return &a, 0
		}
	}
	return nil, wait
}

// quiet says what the planner still wants of a claim that is settled.
func (e *Explorer) quiet(s *state) string {
	if s.pop == nil || s.pop.Status.Phase != v1alpha1.PhaseSucceeded {
		return ""
	}
	for _, uid := range s.claimUIDs() {
		if d := e.decide(s, uid); d.Step != nil || d.Event != nil || d.RequeueAfter != 0 {
			return fmt.Sprintf("F8: settled, and the planner still decides %+v", d)
		}
	}
	return ""
}

// Straight runs the scenario without disturbances and without time passing, and
// returns the steps taken and the events told.
func (e *Explorer) Straight() (steps []populate.Step, events []populate.Event) {
	e.start()
	planner := e.Planner
	defer func() { e.Planner = planner }()
	var last populate.Decision
	e.Planner = func(o populate.Observed) populate.Decision {
		last = planner(o)
		return last
	}
	s := newState(&e.Scenario, 0)
	for round := range restRounds {
		a, _ := e.turn(s, round)
		if a == nil {
			break
		}
		if last.Step != nil {
			steps = append(steps, last.Step)
			if last.Event != nil {
				events = append(events, *last.Event)
			}
		}
		a.do(s)
	}
	return steps, events
}
