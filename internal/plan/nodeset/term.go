package nodeset

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// term is one NodeSelectorTerm: what it demands of each label, by key. A key
// that it says nothing about is not in it; a term without keys admits all.
type term map[string]domain

// parse reads a term. It reports false for one that admits no node: empty,
// unparsable or contradictory.
func parse(t *corev1.NodeSelectorTerm) (term, bool) {
	if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
		return nil, false
	}
	one := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{*t}}
	if _, err := nodeaffinity.NewNodeSelector(one); err != nil {
		return nil, false
	}
	out := term{}
	for _, r := range t.MatchExpressions {
		d, known := out[r.Key]
		if !known {
			d = anything
		}
		if d = d.and(demand(r)); d.empty() {
			return nil, false
		}
		out[r.Key] = d
	}
	return out, true
}

// and returns what both terms demand; false if no node can satisfy both.
func (t term) and(u term) (term, bool) {
	out := maps.Clone(t)
	if out == nil {
		out = term{}
	}
	for key, d := range u {
		if have, ok := out[key]; ok {
			d = have.and(d)
		}
		if d.empty() {
			return nil, false
		}
		out[key] = d
	}
	return out, true
}

// render writes the term as Kubernetes knows it, keys and values sorted. The
// term has a key: one without admits all, and is never the product of two sets
// of which neither lies within the other.
func (t term) render() corev1.NodeSelectorTerm {
	var out corev1.NodeSelectorTerm
	for _, key := range slices.Sorted(maps.Keys(t)) {
		out.MatchExpressions = append(out.MatchExpressions, t[key].render(key)...)
	}
	return out
}

// effort bounds the search of outside.
const effort = 20000

// outside searches for labels of a node that a term admits and none of the
// others does. Yes means that there are none: the term lies within the others.
func outside(t term, others []term) Verdict {
	for _, o := range others {
		if t.implies(o) {
			return Yes
		}
	}
	left := effort
	return search(t, others, &left)
}

// implies says that each demand of o is met by whatever meets t's.
func (t term) implies(o term) bool {
	for key, d := range o {
		have, ok := t[key]
		if !ok {
			have = anything
		}
		for _, n := range d.not() {
			if !have.and(n).empty() {
				return false
			}
		}
	}
	return true
}

// search takes one of the other terms after the other and violates one of its
// demands, in all ways.
func search(t term, others []term, left *int) Verdict {
	if *left--; *left < 0 {
		return Unknown
	}
	if len(others) == 0 {
		return No // these labels are admitted by t and by none of the others
	}
	answer := Yes
	for _, key := range slices.Sorted(maps.Keys(others[0])) {
		for _, n := range others[0][key].not() {
			violating, ok := t.and(term{key: n})
			if !ok {
				continue
			}
			switch search(violating, others[1:], left) {
			case No:
				return No
			case Unknown:
				answer = Unknown
			case Yes:
			}
		}
	}
	return answer
}
