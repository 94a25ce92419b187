package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reasonsOfAPI reads every reason from the source of the API.
func reasonsOfAPI(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1alpha1/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			reason, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, reason)
		}
		return true
	})
	return slices.Sorted(slices.Values(all))
}

func TestEveryReasonHasAdvice(t *testing.T) {
	want := reasonsOfAPI(t)
	if len(want) < 40 {
		t.Fatalf("only %d reasons were read", len(want))
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(advices))); diff != "" {
		t.Errorf("reasons and advices differ, -reasons +advices:\n%s", diff)
	}
	for reason, a := range advices {
		for what, text := range map[string]string{"waits": a.waits, "next": a.next, "do": a.do} {
			if text == "" || strings.Contains(text, "\n") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is %q, want one line without a full stop", reason, what, text)
			}
		}
		if a.act && a.do == "Nothing" {
			t.Errorf("%s: someone must act, but nothing is to do", reason)
		}
	}
	if a := adviceOn("OfTheFuture"); a.do == "" || a.act {
		t.Errorf("a reason that is not known got %+v", a)
	}
}
