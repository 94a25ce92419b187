package template

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestSourceCannotExhaustMemory asks for far more than there is, in ways that
// an author may leave open to a source.
func TestSourceCannotExhaustMemory(t *testing.T) {
	spec := map[string]any{
		"text": strings.Repeat("x", 1<<20), "from": "", "one": "x", "to": strings.Repeat("y", 1<<20),
		"n": int64(1) << 40, "format": "%.999999999f", "list": []any{"a", "b"}, "long": manyStrings(5_000),
	}
	cases := map[string]struct{ value, says string }{
		"ReplaceNothing": {"${source.spec.text.replace(source.spec.from, source.spec.to)}", "replace: the result is larger"},
		"ReplaceEach":    {"${source.spec.text.replace(source.spec.one, source.spec.to)}", "replace: the result is larger"},
		"ReplaceSome":    {"${source.spec.text.replace(source.spec.one, source.spec.to, 1000000)}", "replace: the result is larger"},
		"Join":           {"${source.spec.long.join(source.spec.to)}", "join: the result is larger"},
		"JoinMany":       {"${source.spec.long.map(x, source.spec.to).join()}", "join: the result is larger"},
		"Range":          {"${lists.range(source.spec.n).size()}", "exceeds maximum"},
		"Precision":      {"${source.spec.format.format([1.5])}", "precision"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := render(t, helloSpec(withEnv(tc.value)), map[string]any{"spec": spec})
			if r.Reason != v1alpha1.ReasonTemplateFailed || !strings.Contains(r.Message, tc.says) {
				t.Errorf("Render: %q %q, want TemplateFailed that says %q", r.Reason, r.Message, tc.says)
			}
		})
	}
}

func manyStrings(n int) []any {
	l := make([]any, n)
	for i := range l {
		l[i] = "s"
	}
	return l
}

// TestBoundedFunctionsDoWhatTheyDid compares with what CEL's own do.
func TestBoundedFunctionsDoWhatTheyDid(t *testing.T) {
	cases := map[string]string{
		"${'hello hello'.replace('he', 'we')}":        "wello wello",
		"${'hello hello'.replace('he', 'we', -1)}":    "wello wello",
		"${'hello hello'.replace('he', 'we', 1)}":     "wello hello",
		"${'hello hello'.replace('he', 'we', 0)}":     "hello hello",
		"${'hello hello'.replace('', '_')}":           "_h_e_l_l_o_ _h_e_l_l_o_",
		"${'hello hello'.replace('h', '')}":           "ello ello",
		"${['hello', 'mellow'].join()}":               "hellomellow",
		"${['hello', 'mellow'].join(' ')}":            "hello mellow",
		"${[].join('/')}":                             "",
		"${['', ''].join('/')}":                       "/",
		"${lists.range(3).map(i, string(i)).join()}":  "012",
		"${'%.2f'.format([1.5])}":                     "1.50",
		"${['a', 'b'].map(x, x.upperAscii()).join()}": "AB",
	}
	for value, want := range cases {
		r := render(t, helloSpec(withEnv(value)), map[string]any{})
		if r.Reason != "" {
			t.Errorf("%s: %s: %s", value, r.Reason, r.Message)
			continue
		}
		if got := kubeletEnv(r.Pod.Spec.Containers[0].Env)["VALUE"]; got != want {
			t.Errorf("%s is %q, want %q", value, got, want)
		}
	}
}
