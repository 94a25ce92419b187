package nodeset

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Set is a set of nodes: those that a volume's affinity admits. The zero Set
// admits every node, as a volume without affinity does.
type Set struct {
	affinity *corev1.NodeSelector
	matcher  *nodeaffinity.LazyErrorNodeSelector
	terms    []term
}

// Of returns the nodes that an affinity admits. The affinity must not be
// changed afterwards.
func Of(a *corev1.VolumeNodeAffinity) Set {
	if a == nil || a.Required == nil {
		return Set{}
	}
	s := Set{affinity: a.Required, matcher: nodeaffinity.NewLazyErrorNodeSelector(a.Required)}
	for i := range a.Required.NodeSelectorTerms {
		if t, ok := parse(&a.Required.NodeSelectorTerms[i]); ok {
			s.terms = append(s.terms, t)
		}
	}
	return s
}

// All says that every node is admitted because there is no affinity.
func (s Set) All() bool { return s.affinity == nil }

// Empty says that no node can ever be admitted, whatever its labels.
func (s Set) Empty() bool { return !s.All() && len(s.terms) == 0 }

// Has says whether a node with these labels is admitted.
func (s Set) Has(labels map[string]string) bool {
	if s.All() {
		return true
	}
	node := corev1.Node{}
	node.Labels = labels
	ok, _ := s.matcher.Match(&node) // a term with an error admits nothing
	return ok
}

// Affinity returns the set as the affinity of a volume: nil if every node is
// admitted. It is not a copy.
func (s Set) Affinity() *corev1.VolumeNodeAffinity {
	if s.All() {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: s.affinity}
}

// Values returns the values, sorted, that a label can have on nodes of the set,
// if every term lists them.
func (s Set) Values(key string) ([]string, bool) {
	if s.All() || len(s.terms) == 0 {
		return nil, false
	}
	var out []string
	for _, t := range s.terms {
		d, ok := t[key]
		if !ok || !d.listed || d.absent {
			return nil, false
		}
		out = append(out, d.values...)
	}
	return sorted(out), true
}

// Verdict answers whether one set lies within another.
type Verdict int

// The verdicts.
const (
	// Unknown: the sets are too intricate to say. Treat it as No where that is
	// the careful answer.
	Unknown Verdict = iota
	// Yes: every node that there could be of the one is in the other.
	Yes
	// No: there could be a node of the one that is not in the other.
	No
)

// Within says whether every node that s could ever admit, t admits too.
func (s Set) Within(t Set) Verdict {
	switch {
	case t.All() || s.Empty():
		return Yes
	case s.All():
		return outside(term{}, t.terms)
	case equality.Semantic.DeepEqual(s.affinity, t.affinity):
		return Yes
	}
	answer := Yes
	for _, part := range s.terms {
		switch outside(part, t.terms) {
		case No:
			return No
		case Unknown:
			answer = Unknown
		case Yes:
		}
	}
	return answer
}

// Equal says whether both admit the same nodes, those included that do not
// exist yet. What cannot be told apart in reasonable time counts as different.
func (s Set) Equal(t Set) bool { return s.Within(t) == Yes && t.Within(s) == Yes }

// MaxTerms bounds the terms of an intersection: the cross product of two long
// lists would fill the volume object.
const MaxTerms = 100

// Intersect returns the nodes that are in both, in as few and as plain terms as
// their structure shows: requirements of a key are merged, contradictions and
// terms within others are left out. It reports false if more than MaxTerms
// terms are left.
func (s Set) Intersect(t Set) (Set, bool) {
	switch {
	case s.All():
		return t, true
	case t.All() || s.Within(t) == Yes:
		return s, true
	case t.Within(s) == Yes:
		return t, true
	}
	var products []term
	for _, a := range s.terms {
		for _, b := range t.terms {
			p, ok := a.and(b)
			if !ok || covered(p, products) {
				continue
			}
			kept := products[:0]
			for _, old := range products {
				if !covered(old, []term{p}) {
					kept = append(kept, old)
				}
			}
			if products = append(kept, p); len(products) > MaxTerms {
				return Set{}, false
			}
		}
	}
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}
	for _, p := range products {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, p.render())
	}
	return Of(&corev1.VolumeNodeAffinity{Required: selector}), true
}

// covered says that a term admits nothing that one of the others does not.
func covered(t term, by []term) bool {
	for _, b := range by {
		if outside(t, []term{b}) == Yes {
			return true
		}
	}
	return false
}
