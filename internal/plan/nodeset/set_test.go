package nodeset_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// affinity reads "zone=a,b gen>2; disk" as two terms.
func affinity(t testing.TB, text string) *corev1.VolumeNodeAffinity {
	t.Helper()
	if text == "nil" {
		return nil
	}
	s := &corev1.NodeSelector{}
	for part := range strings.SplitSeq(text, ";") {
		term := corev1.NodeSelectorTerm{}
		for word := range strings.FieldsSeq(part) {
			r := corev1.NodeSelectorRequirement{}
			switch i := strings.IndexAny(word, "=!<>~"); {
			case i < 0:
				r.Key, r.Operator = word, corev1.NodeSelectorOpExists
			case i == 0 && word[0] == '!':
				r.Key, r.Operator = word[1:], corev1.NodeSelectorOpDoesNotExist
			default:
				r.Key, r.Values = word[:i], strings.Split(word[i+1:], ",")
				r.Operator = map[byte]corev1.NodeSelectorOperator{
					'=': corev1.NodeSelectorOpIn, '~': corev1.NodeSelectorOpNotIn,
					'>': corev1.NodeSelectorOpGt, '<': corev1.NodeSelectorOpLt,
				}[word[i]]
			}
			term.MatchExpressions = append(term.MatchExpressions, r)
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, term)
	}
	return &corev1.VolumeNodeAffinity{Required: s}
}

func TestWithin(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		a, b   string
		want   nodeset.Verdict
	}{
		"Same":              {"equal text", "zone=a", "zone=a", nodeset.Yes},
		"Reordered":         {"order and repetition of terms and values say nothing", "zone=b,a,a; gen=1", "gen=1; zone=a,b; gen=1", nodeset.Yes},
		"Narrower":          {"fewer values", "zone=a", "zone=a,b", nodeset.Yes},
		"Wider":             {"more values", "zone=a,b", "zone=a", nodeset.No},
		"SplitIntoTerms":    {"terms together cover a list", "zone=a,b", "zone=a; zone=b", nodeset.Yes},
		"CoveredByCases":    {"a value is either 1 or not", "zone=a", "zone=a gen=1; zone=a gen~1", nodeset.Yes},
		"CoveredButAbsent":  {"a node without the label is in no term", "zone=a", "zone=a gen; zone=b", nodeset.No},
		"NilIsAll":          {"no affinity admits all", "zone=a", "nil", nodeset.Yes},
		"AllIsNotSome":      {"a node without zone", "nil", "zone", nodeset.No},
		"AllIsAll":          {"with the label or without", "nil", "zone; !zone", nodeset.Yes},
		"MoreDemands":       {"a second demand narrows", "zone=a gen=2", "zone=a", nodeset.Yes},
		"AnotherKey":        {"a zone says nothing about a region", "zone=a", "region=r", nodeset.No},
		"Contradiction":     {"a contradictory term admits nothing", "zone=a zone=b; zone=c", "zone=c", nodeset.Yes},
		"Unparsable":        {"a term that cannot be parsed admits nothing", "gen>x; zone=c", "zone=c", nodeset.Yes},
		"Numbers":           {"3 is more than 2", "gen=3,4", "gen>2", nodeset.Yes},
		"NumbersSpelled":    {"07 is a number, abc is none", "gen=07,abc", "gen>2", nodeset.No},
		"NumberRanges":      {"every integer is below 5 or above 3", "gen>0", "gen<5; gen>3", nodeset.Yes},
		"NumbersAreNotAll":  {"a word is neither", "gen", "gen<5; gen>3", nodeset.No},
		"EmptyRange":        {"no integer between 2 and 3", "gen>2 gen<3", "zone=a", nodeset.Yes},
		"NegativeNumbers":   {"no label value has a sign", "gen<0", "zone=a", nodeset.Yes},
		"ExclusionOfNumber": {"7 can be written 07", "gen>6 gen<8 gen~7", "zone=a", nodeset.No},
		"NotInWithAbsent":   {"NotIn admits nodes without the label", "!zone", "zone~a", nodeset.Yes},
		"EmptyTerm":         {"admits nothing", "", "zone=a", nodeset.Yes},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodeset.Of(affinity(t, c.a)).Within(nodeset.Of(affinity(t, c.b)))
			if got != c.want {
				t.Errorf("%q within %q is %d, want %d: %s", c.a, c.b, got, c.want, c.reason)
			}
		})
	}
}

func TestWithinGivesUp(t *testing.T) {
	// A puzzle that grows exponentially: 3-colouring of a complete graph.
	var b []string
	for i := range 14 {
		for j := range i {
			for _, c := range "rgb" {
				b = append(b, fmt.Sprintf("n%d=%c n%d=%c", i, c, j, c))
			}
		}
	}
	var a []string
	for i := range 14 {
		a = append(a, fmt.Sprintf("n%d=r,g,b", i))
	}
	got := nodeset.Of(affinity(t, strings.Join(a, " "))).Within(nodeset.Of(affinity(t, strings.Join(b, ";"))))
	if got == nodeset.No {
		t.Error("there is a colouring of a complete graph, says the search")
	}
}

func TestIntersect(t *testing.T) {
	for name, c := range map[string]struct {
		a, b, want string
	}{
		"OneZone":        {"zone=a,b", "zone=b,c", "zone=b"},
		"Disjoint":       {"zone=a", "zone=b", "none"},
		"TwoKeys":        {"gen1=yes", "gen2=yes", "gen1=yes gen2=yes"},
		"CrossProduct":   {"zone=a; zone=b", "gen=1; gen=2", "gen=1 zone=a; gen=2 zone=a; gen=1 zone=b; gen=2 zone=b"},
		"Contradictions": {"zone=a; zone=b", "zone=b gen=1; zone=c", "gen=1 zone=b"},
		"WithinKept":     {"zone=b,a", "zone=a,b; gen=1", "zone=b,a"},
		"All":            {"nil", "zone=a", "zone=a"},
		"Numbers":        {"gen>2", "gen<9 gen~5", "gen>2 gen<9 gen~5"},
		"Absent":         {"!zone; zone=a", "zone~a", "!zone"},
		"Present":        {"zone", "zone~a", "zone~a zone"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := nodeset.Of(affinity(t, c.a)).Intersect(nodeset.Of(affinity(t, c.b)))
			want := affinity(t, c.want)
			if c.want == "none" {
				want = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}}
			}
			if diff := cmp.Diff(want, got.Affinity()); !ok || diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIntersectIsBounded(t *testing.T) {
	var a, b []string
	for i := range 15 {
		a, b = append(a, fmt.Sprintf("x%d=1", i)), append(b, fmt.Sprintf("y%d=1", i))
	}
	if _, ok := nodeset.Of(affinity(t, strings.Join(a, ";"))).Intersect(nodeset.Of(affinity(t, strings.Join(b, ";")))); ok {
		t.Error("225 terms are written to a volume")
	}
}

func TestProblems(t *testing.T) {
	empty := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
	fields := affinity(t, "zone=a")
	fields.Required.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}
	for name, c := range map[string]struct {
		affinity *corev1.VolumeNodeAffinity
		want     string // a part of the first problem; empty: none
	}{
		"Fine":          {affinity(t, "zone=a; gen>2"), ""},
		"Nil":           {nil, ""},
		"NoRequired":    {&corev1.VolumeNodeAffinity{}, "nodeAffinity.required: is missing"},
		"NoTerms":       {empty, "nodeSelectorTerms: without a term"},
		"EmptyTerm":     {affinity(t, "zone=a;"), "nodeSelectorTerms[1]: an empty term"},
		"MatchFields":   {fields, "nodeSelectorTerms[0]: matchFields are ignored"},
		"NotANumber":    {affinity(t, "gen>x"), "nodeSelectorTerms[0]: cannot be parsed"},
		"Contradictory": {affinity(t, "zone=a zone=b"), "nodeSelectorTerms[0]: contradicts itself"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(nodeset.Problems(c.affinity), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("problems are %q, want one with %q", got, c.want)
			}
		})
	}
}

// random makes affinities and nodes over few labels, so that they often touch.
type random struct{ *rand.Rand }

func (r random) affinity() *corev1.VolumeNodeAffinity {
	if r.IntN(20) == 0 {
		return nil
	}
	a := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
	for range r.IntN(4) {
		var term corev1.NodeSelectorTerm
		for range r.IntN(4) {
			op := []corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}[r.IntN(6)]
			req := corev1.NodeSelectorRequirement{Key: r.key(), Operator: op}
			switch op {
			case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
				for range 1 + r.IntN(3) {
					req.Values = append(req.Values, r.value())
				}
			case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
				req.Values = []string{r.value()}
			case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			}
			term.MatchExpressions = append(term.MatchExpressions, req)
		}
		if r.IntN(10) == 0 {
			term.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}
		}
		a.Required.NodeSelectorTerms = append(a.Required.NodeSelectorTerms, term)
	}
	return a
}

func (r random) key() string   { return []string{"zone", "gen"}[r.IntN(2)] }
func (r random) value() string { return []string{"a", "b", "1", "2", "02", "3", "", "x"}[r.IntN(8)] }

func (r random) labels() map[string]string {
	out := map[string]string{}
	for range r.IntN(3) {
		out[r.key()] = r.value()
	}
	return out
}

// TestAgreesWithKubernetes holds Has, Intersect and Within against
// CheckNodeAffinity over random affinities and nodes.
func TestAgreesWithKubernetes(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	admits := func(a *corev1.VolumeNodeAffinity, labels map[string]string) bool {
		pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: a}}
		return volume.CheckNodeAffinity(pv, labels) == nil
	}
	verdicts := map[nodeset.Verdict]int{}
	for range 4000 {
		a, b := r.affinity(), r.affinity()
		sa, sb := nodeset.Of(a), nodeset.Of(b)
		both, ok := sa.Intersect(sb)
		within := sa.Within(sb)
		verdicts[within]++
		if !ok {
			t.Fatalf("no intersection of %v and %v", a, b)
		}
		for range 20 {
			l := r.labels()
			ina, inb := admits(a, l), admits(b, l)
			if sa.Has(l) != ina {
				t.Fatalf("%v admits %v: Kubernetes says %t", a, l, ina)
			}
			if got := admits(both.Affinity(), l); got != (ina && inb) {
				t.Fatalf("%v and %v give %v, which for %v is %t", a, b, both.Affinity(), l, got)
			}
			if ina && !inb && within == nodeset.Yes {
				t.Fatalf("%v is within %v, but for %v", a, b, l)
			}
		}
	}
	if verdicts[nodeset.Yes] < 200 || verdicts[nodeset.No] < 200 || verdicts[nodeset.Unknown] > 0 {
		t.Errorf("verdicts are %v: the test shows little", verdicts)
	}
}

// TestWithinFindsWhatDiffers holds a No against all nodes over a small world.
func TestWithinFindsWhatDiffers(t *testing.T) {
	r := random{rand.New(rand.NewPCG(3, 4))}
	// With the values that the affinities know, one word and some integers that
	// they do not know, every combination of labels that could matter is here.
	values := []string{"a", "b", "1", "2", "02", "3", "", "x", "word", "0", "01", "001", "002", "003", "4", "04", "99"}
	var world []map[string]string
	for i := -1; i < len(values); i++ {
		for j := -1; j < len(values); j++ {
			l := map[string]string{}
			if i >= 0 {
				l["zone"] = values[i]
			}
			if j >= 0 {
				l["gen"] = values[j]
			}
			world = append(world, l)
		}
	}
	for range 500 {
		a, b := r.affinity(), r.affinity()
		sa, sb := nodeset.Of(a), nodeset.Of(b)
		want := nodeset.Yes
		for _, l := range world {
			if sa.Has(l) && !sb.Has(l) {
				want = nodeset.No
				break
			}
		}
		if got := sa.Within(sb); got != want {
			t.Fatalf("%v within %v is %d, want %d", a, b, got, want)
		}
	}
}
