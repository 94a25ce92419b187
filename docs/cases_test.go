// Package docs keeps pages honest that speak of the code.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// shownBy is a test that a page names, with the link to its file. The part
// behind the slash is a case of it.
var shownBy = regexp.MustCompile("\\[`((?:Test|Fuzz)\\w+)(?:/(\\w+))?`\\]\\(([^)]+)\\)")

// TestCases checks docs/cases.md: every case is there once, in order, every
// row names a test, and every test that is named exists where the link leads.
func TestCases(t *testing.T) {
	page, err := os.ReadFile("cases.md")
	if err != nil {
		t.Fatal(err)
	}
	const cases = 15
	numbered := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.Contains(cells[0], "---") || strings.TrimSpace(cells[2]) == "shown by" {
			continue
		}
		what := strings.TrimSpace(cells[0])
		if n, err := strconv.Atoi(what); err == nil {
			if numbered++; n != numbered {
				t.Errorf("case %d follows case %d", n, numbered-1)
			}
		}
		named := shownBy.FindAllStringSubmatch(cells[2], -1)
		if len(named) == 0 {
			t.Errorf("%q names no test", what)
		}
		for _, m := range named {
			if err := exists(m[3], m[1], m[2]); err != "" {
				t.Errorf("%q: %s %s", what, m[0], err)
			}
		}
	}
	if numbered != cases {
		t.Errorf("there are %d cases, want %d", numbered, cases)
	}
}

// exists says what is wrong with a reference to a test, or nothing.
func exists(path, test, sub string) string {
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		return "leads nowhere"
	}
	_, body, found := strings.Cut(string(text), "func "+test+"(")
	if !found {
		return "is not in that file"
	}
	// Another test's case of the same name is none of this one's.
	body, _, _ = strings.Cut(body, "\nfunc Test")
	if sub != "" && !strings.Contains(body, strconv.Quote(sub)) {
		return "has no such case"
	}
	return ""
}
