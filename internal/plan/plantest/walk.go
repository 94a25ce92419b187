package plantest

import (
	"math/rand/v2"
	"slices"
)

// Walk takes random paths of the given length through the scenario, with as
// many disturbances as come up, and lets each come to rest. Equal seeds take
// equal paths.
func (e *Explorer) Walk(seed uint64, walks, length int) Result {
	e.start()
	var r Result
	for i := range walks {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		s := newState(&e.Scenario, length)
		trace := []string{e.Scenario.Name}
		for range length {
			actions := e.actions(s)
			if len(actions) == 0 {
				break
			}
			a := choose(random, actions)
			s = s.clone()
			s.slow = false
			s.left -= a.cost
			a.do(s)
			trace = append(trace, a.name)
			r.States++
			r.Transitions++
			if why := s.check(); why != "" {
				r.Violation = &Violation{Invariant: why, Trace: trace}
				r.Decisions = e.decisions
				return r
			}
		}
		if why, how := e.settles(s); why != "" {
			r.Violation = &Violation{Invariant: why, Trace: append(slices.Clip(trace), append([]string{"-- disturbances stop --"}, how...)...)}
			r.Decisions = e.decisions
			return r
		}
	}
	r.Complete, r.Decisions = true, e.decisions
	return r
}

// choose prefers what happens by itself: a cluster in which something goes
// wrong at every step gets nowhere.
func choose(random *rand.Rand, actions []action) action {
	var natural, disturbing []action
	for _, a := range actions {
		if a.cost == 0 {
			natural = append(natural, a)
		} else {
			disturbing = append(disturbing, a)
		}
	}
	if len(natural) == 0 || (len(disturbing) > 0 && random.IntN(6) == 0) {
		return disturbing[random.IntN(len(disturbing))]
	}
	return natural[random.IntN(len(natural))]
}
