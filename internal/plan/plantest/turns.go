package plantest

import (
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// verdict is the answer to a claim that asks for its turn: one claim alone has
// it, unless a neighbour came before it.
func (s *state) verdict() *slots.Verdict {
	if s.crowded {
		return &slots.Verdict{Kind: slots.OfNamespace, Name: namespace, Limit: 1, Ahead: 1}
	}
	return &slots.Verdict{Granted: true}
}

// neighbours is what those do who are filled beside the claim.
func (s *state) neighbours(out []action) []action {
	switch {
	case s.crowded:
		out = append(out, action{name: "a neighbour has been filled", do: func(s *state) { s.crowded = false }})
	case s.sc.Crowded && !s.pushed:
		out = append(out, action{name: "another neighbour comes first", cost: 1, do: func(s *state) { s.crowded, s.pushed = true, true }})
	}
	return out
}

// begun checks an attempt that is begun, and holds nothing so far, against whose
// turn it is.
func (s *state) begun(attempt int32) {
	if !s.crowded || attempt == 0 {
		return
	}
	for _, p := range s.pvcs {
		if p.Labels[v1alpha1.LabelRole] != "" {
			return // a record that was lost is made again
		}
	}
	for _, p := range s.pods {
		if p.Labels[v1alpha1.LabelRole] != "" {
			return
		}
	}
	s.breach("attempt %d is begun out of turn", attempt)
}
