package nodeset

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// domain is the set of what one label of a node may be: absent, or one of some
// values. The values are those of a list, or all but those of a list; and in
// both cases only integers between two bounds, or whatever is no integer.
type domain struct {
	absent bool
	// listed: values are all that is allowed; else values are excluded.
	listed bool
	values []string // sorted
	// integers in low..high are allowed; others only if there is no bound.
	low, high int64
	// words: values that are no integers are allowed.
	words bool
}

// anything is the domain of a label that nothing is demanded of.
var anything = domain{absent: true, low: math.MinInt64, high: math.MaxInt64, words: true}

// present is the domain of a label that has to be there.
var present = domain{low: math.MinInt64, high: math.MaxInt64, words: true}

func listed(values []string) domain {
	d := present
	d.listed, d.values = true, sorted(values)
	return d
}

func excluded(values []string) domain {
	d := present
	d.values = sorted(values)
	return d
}

func between(low, high int64) domain {
	return domain{low: low, high: high}
}

func sorted(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }

// demand is the domain that a requirement leaves, one that Kubernetes parsed.
func demand(r corev1.NodeSelectorRequirement) domain {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return listed(r.Values)
	case corev1.NodeSelectorOpNotIn:
		d := excluded(r.Values)
		d.absent = true
		return d
	case corev1.NodeSelectorOpExists:
		return present
	case corev1.NodeSelectorOpDoesNotExist:
		return domain{absent: true, listed: true}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
	}
	n, err := strconv.ParseInt(r.Values[0], 10, 64)
	switch {
	case err != nil:
		return domain{listed: true}
	case r.Operator == corev1.NodeSelectorOpGt && n < math.MaxInt64:
		return between(n+1, math.MaxInt64)
	case r.Operator == corev1.NodeSelectorOpLt && n > math.MinInt64:
		return between(math.MinInt64, n-1)
	}
	return domain{listed: true}
}

// and returns what is in both.
func (d domain) and(e domain) domain {
	out := domain{
		absent: d.absent && e.absent, listed: d.listed || e.listed,
		low: max(d.low, e.low), high: min(d.high, e.high), words: d.words && e.words,
	}
	switch {
	case d.listed && e.listed:
		out.values = keep(d.values, func(v string) bool { return has(e.values, v) })
	case d.listed:
		out.values = keep(d.values, func(v string) bool { return !has(e.values, v) })
	case e.listed:
		out.values = keep(e.values, func(v string) bool { return !has(d.values, v) })
	default:
		out.values = sorted(slices.Concat(d.values, e.values))
	}
	if out.listed {
		out.values = keep(out.values, out.fits)
	}
	return out
}

// fits says whether a value keeps to the bounds, as labels.Requirement reads
// values.
func (d domain) fits(value string) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return d.words
	}
	return n >= d.low && n <= d.high
}

// empty says that a label can be nothing at all.
func (d domain) empty() bool {
	switch {
	case d.absent:
		return false
	case d.listed:
		return len(d.values) == 0
	case d.words:
		return false
	}
	// No label value begins with a sign. An integer can be written in many ways
	// (7, 07, 007), so that no exclusion exhausts a range.
	return max(d.low, 0) > d.high
}

// not returns domains that together make up all that is not in d.
func (d domain) not() []domain {
	var out []domain
	if !d.absent {
		out = append(out, domain{absent: true, listed: true})
	}
	if d.listed {
		// All values of a list are within its bounds.
		return append(out, excluded(d.values))
	}
	if len(d.values) > 0 {
		out = append(out, listed(d.values))
	}
	if d.low > math.MinInt64 {
		out = append(out, between(math.MinInt64, d.low-1))
	}
	if d.high < math.MaxInt64 {
		out = append(out, between(d.high+1, math.MaxInt64))
	}
	if !d.words {
		// Words are what has no integer in an impossible range.
		out = append(out, domain{low: math.MaxInt64, high: math.MinInt64, words: true})
	}
	return out
}

// render writes the domain as requirements of a key. The domain is one of a
// parsed term or of an intersection of such, never one of not.
func (d domain) render(key string) []corev1.NodeSelectorRequirement {
	r := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	if d.listed {
		if d.absent {
			// A list that allows absence holds nothing: only DoesNotExist makes one.
			return []corev1.NodeSelectorRequirement{r(corev1.NodeSelectorOpDoesNotExist)}
		}
		return []corev1.NodeSelectorRequirement{r(corev1.NodeSelectorOpIn, d.values...)}
	}
	var out []corev1.NodeSelectorRequirement
	if d.low > math.MinInt64 {
		out = append(out, r(corev1.NodeSelectorOpGt, strconv.FormatInt(d.low-1, 10)))
	}
	if d.high < math.MaxInt64 {
		out = append(out, r(corev1.NodeSelectorOpLt, strconv.FormatInt(d.high+1, 10)))
	}
	if len(d.values) > 0 {
		out = append(out, r(corev1.NodeSelectorOpNotIn, d.values...))
	}
	if !d.absent && d.words {
		out = append(out, r(corev1.NodeSelectorOpExists))
	}
	return out
}

func has(sorted []string, v string) bool { _, ok := slices.BinarySearch(sorted, v); return ok }

func keep(values []string, want func(string) bool) []string {
	var out []string
	for _, v := range values {
		if want(v) {
			out = append(out, v)
		}
	}
	return out
}
