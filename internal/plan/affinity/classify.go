package affinity

import (
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// Classify says how a target relates to what a volume has: by the nodes that
// exist; where those make no difference, by those that there could be.
func Classify(from, to nodeset.Set, nodes []Node) change.Kind {
	_, gained, lost := Compare(from, to, nodes)
	shrinks, grows := len(lost) > 0, len(gained) > 0
	if !shrinks && !grows {
		shrinks, grows = from.Within(to) != nodeset.Yes, to.Within(from) != nodeset.Yes
	}
	switch {
	case shrinks && grows:
		return change.Move
	case shrinks:
		return change.Narrow
	case grows:
		return change.Widen
	}
	return change.None
}

// Compare sorts the nodes that exist by what becomes of them when a volume's
// affinity changes.
func Compare(from, to nodeset.Set, nodes []Node) (kept, gained, lost []Node) {
	for _, n := range nodes {
		switch before, after := from.Has(n.Labels), to.Has(n.Labels); {
		case before && after:
			kept = append(kept, n)
		case after:
			gained = append(gained, n)
		case before:
			lost = append(lost, n)
		}
	}
	return kept, gained, lost
}

// fenced says that a write from one set to another has to be fenced: it takes
// nodes away, of those that exist or of those that may join at any moment.
func fenced(from, to nodeset.Set, nodes []Node) bool {
	_, _, lost := Compare(from, to, nodes)
	return len(lost) > 0 || from.Within(to) != nodeset.Yes
}

// route is the writes of a change.
type route struct {
	kind change.Kind
	// first is written before the storage moves; nothing is where skip is set.
	first     nodeset.Set
	skipFirst bool
	// offline: old and new have no node in common, so that nothing can be
	// written that is true before and after. The mark stands instead.
	offline bool
	// skipLast: the first write was that of the target already.
	skipLast bool
	// tangled: the intersection has more terms than a volume should hold.
	tangled bool
}

// routeOf plans the writes from what a volume has to a target. Where the
// storage has moved already there is one. Where it is to move, what is written
// before may only admit nodes of both, and what is written after is the target.
func routeOf(from, to nodeset.Set, nodes []Node, storage change.StorageMove) route {
	r := route{kind: Classify(from, to, nodes), skipFirst: true}
	if storage != change.StorageMovesAfterNarrowing {
		return r
	}
	if r.kind == change.Widen || r.kind == change.None {
		return r // no node that exists is lost: nothing to do before the storage
	}
	both, ok := from.Intersect(to)
	if !ok {
		r.tangled = true
		return r
	}
	if kept, _, _ := Compare(from, both, nodes); both.Empty() || len(kept) == 0 {
		r.offline = true
		return r
	}
	r.skipFirst, r.first = false, both
	if r.skipLast = to.Within(both) == nodeset.Yes; r.skipLast {
		r.first = to // in the words of the target
	}
	return r
}
