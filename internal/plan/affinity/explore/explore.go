package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// Planner is the function under test.
type Planner func(affinity.Observed) affinity.Decision

// Walk visits every state that a setting leads to with at most this many
// disturbances, and returns how many there are. An error tells what was broken
// and how it came about.
func Walk(s Setting, next Planner, faults, limit int) (states int, err error) {
	type visit struct {
		w    *World
		from *visit
		by   string
	}
	story := func(v *visit) string {
		var lines []string
		for ; v != nil && v.from != nil; v = v.from {
			lines = append(lines, v.by)
		}
		slices.Reverse(lines)
		return strings.Join(lines, "\n  ")
	}
	seen := map[string]bool{}
	queue := []*visit{{w: s.Start()}}
	seen[queue[0].w.key()] = true
	for len(queue) > 0 {
		v := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		states++
		if states > limit {
			return states, fmt.Errorf("more than %d states", limit)
		}
		if broken := v.w.check(s); broken != "" {
			return states, fmt.Errorf("%s:\n  %s", broken, story(v))
		}
		moves := v.w.moves(s, next, faults)
		if !slices.ContainsFunc(moves, func(m move) bool { return !m.fault }) {
			if broken := v.w.rest(s); broken != "" {
				return states, fmt.Errorf("%s:\n  %s", broken, story(v))
			}
		}
		for _, m := range moves {
			if k := m.next.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, &visit{m.next, v, m.name})
			}
		}
	}
	return states, nil
}

// check returns which invariant a state breaks.
func (w *World) check(s Setting) string {
	if w.Foreign {
		return "" // whoever edited the volume answers for its Pods
	}
	if s.GateInForce && w.Stranded != "" {
		return fmt.Sprintf("A1: Pod %s was bound where the affinity does not admit it", w.Stranded)
	}
	for _, p := range w.Pods {
		drains := s.RunningPods == change.RunningPodsDrain || s.RunningPods == change.RunningPodsEvict
		if s.GateInForce && !drains && p.Node != "" && w.Affinity != encode(s.From) && !nodeset.Of(decode(w.Affinity)).Has(w.node(s, p.Node)) {
			return fmt.Sprintf("A1: the volume was narrowed under Pod %s on %s", p.Name, p.Node)
		}
		if s.GateInForce && s.Storage == change.StorageMovesAfterNarrowing && p.Node != "" && !w.reachable(s, p.Node) {
			return fmt.Sprintf("A1: Pod %s is on %s, where the storage does not serve it", p.Name, p.Node)
		}
	}
	// The storage has moved only if that was safe; then the affinity promises no
	// node that it lacks, once the change is over.
	if w.Change.Status.CompletedAt != nil && s.Storage == change.StorageMovesAfterNarrowing {
		for _, n := range s.Nodes {
			if nodeset.Of(decode(w.Affinity)).Has(n.Labels) && !w.reachable(s, n.Name) {
				return fmt.Sprintf("principle: the affinity promises %s, which the storage does not serve", n.Name)
			}
		}
	}
	if w.Change.Status.CompletedAt != nil && w.Mark != nil && w.Step == nil && w.Gone {
		return "a change that is over left its mark"
	}
	return ""
}

// rest returns what is wrong with a state in which nothing more happens by
// itself.
func (w *World) rest(s Setting) string {
	st := w.Change.Status
	switch {
	case w.Foreign && st.Phase != change.PhaseFailed && st.CompletedAt == nil:
		return "A5: a foreign edit is not told"
	case w.Foreign:
		return ""
	case st.Phase == change.PhaseBlocked && w.Mark != nil:
		return "A2: a blocked change restricts somebody"
	case st.CompletedAt == nil && st.Phase != change.PhaseBlocked && st.Phase != change.PhaseSettling && st.Phase != change.PhaseFencing:
		return fmt.Sprintf("stuck in phase %q", st.Phase)
	case st.CompletedAt != nil && w.Mark != nil:
		return "a change that is over left its mark"
	case st.Phase == change.PhaseSucceeded && !nodeset.Of(decode(w.Affinity)).Equal(nodeset.Of(s.To)):
		return "A3: succeeded without the target"
	case st.Phase == change.PhaseAborted && w.Affinity != encode(s.From):
		return "A3: aborted without the old affinity"
	}
	return ""
}
