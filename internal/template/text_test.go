package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   []part
	}{
		"Empty":          {"Nothing is no part.", "", nil},
		"Literal":        {"Text without ${ stays as it is.", "a $ $$ $(B) {}", []part{{literal, "a $ $$ $(B) {}"}}},
		"Expression":     {"White space around an expression is not part of it.", "${ source.a }", []part{{expression, "source.a"}}},
		"Mixed":          {"Literals and expressions alternate.", "a${x}b${y}c", []part{{literal, "a"}, {expression, "x"}, {literal, "b"}, {expression, "y"}, {literal, "c"}}},
		"Adjacent":       {"There is no empty literal between expressions.", "${x}${y}", []part{{expression, "x"}, {expression, "y"}}},
		"Escape":         {"$${ is a literal ${ and opens nothing.", "a$${x}", []part{{literal, "a"}, {escape, "${"}, {literal, "x}"}}},
		"DollarEscape":   {"The escape binds to the last $ before the brace.", "$$${x}", []part{{literal, "$"}, {escape, "${"}, {literal, "x}"}}},
		"Braces":         {"Braces nest.", "${ {'a': {'b': 1}}.a.b }", []part{{expression, "{'a': {'b': 1}}.a.b"}}},
		"BraceInString":  {"A brace in a string closes nothing.", `${'}' + "}" + x}`, []part{{expression, `'}' + "}" + x`}}},
		"EscapedQuote":   {"A quote behind a backslash closes no string.", `${'\'}'}`, []part{{expression, `'\'}'`}}},
		"RawString":      {"In a raw string a backslash escapes nothing.", `${r'\'}`, []part{{expression, `r'\'`}}},
		"RawBytes":       {"Bytes may be raw as well.", `${bR"\"}`, []part{{expression, `bR"\"`}}},
		"NotRaw":         {"A name that ends in r makes no string raw.", `${for'\'}'}`, []part{{expression, `for'\'}'`}}},
		"TripleQuotes":   {"A triple-quoted string holds quotes and lines.", "${'''a'}\n'''}", []part{{expression, "'''a'}\n'''"}}},
		"Comment":        {"A brace in a comment closes nothing.", "${x // }\n}", []part{{expression, "x // }"}}},
		"DollarInExpr":   {"$ in an expression is CEL's business.", "${'$${'}", []part{{expression, "'$${'"}}},
		"DollarAtTheEnd": {"A $ at the end is a $.", "a$", []part{{literal, "a$"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tc.in)
			if err != nil {
				t.Fatalf("%s\nparse(%q): %v", tc.reason, tc.in, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(part{})); diff != "" {
				t.Errorf("%s\nparse(%q): -want, +got:\n%s", tc.reason, tc.in, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		in   string
		want string
	}{
		"Unclosed":             {"ab${x", "character 3"},
		"UnclosedInner":        {"${ {'a': 1}", "character 1"},
		"UnclosedString":       {"${'a}", "no closing }"},
		"UnclosedTripleString": {"${'''a''}", "no closing }"},
		"Empty":                {"a${ }", "no expression"},
		"CommentToTheEnd":      {"${x // }", "no closing }"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := parse(tc.in); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("parse(%q) = %v, %v, want an error that says %q", tc.in, got, err, tc.want)
			}
		})
	}
}

// FuzzParse holds that parse neither panics nor loses text: what it returns,
// written out again, parses to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "${x}", "$${x}", "$$${x}", "${'}'}", `${r"\"}`, "${{}}", "a${x}b$", "${'''", "${//\n}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := parse(s)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, p := range parts {
			switch p.kind {
			case literal:
				again.WriteString(p.text)
			case escape:
				again.WriteString("$${")
			case expression:
				again.WriteString("${" + p.text + "\n}")
			}
		}
		got, err := parse(again.String())
		if err != nil {
			t.Fatalf("parse(%q) of parse(%q): %v", again.String(), s, err)
		}
		if diff := cmp.Diff(parts, got, cmp.AllowUnexported(part{})); diff != "" {
			t.Fatalf("parse(%q) of parse(%q): -want, +got:\n%s", again.String(), s, diff)
		}
	})
}
