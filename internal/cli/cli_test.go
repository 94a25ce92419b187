package cli

import (
	"errors"
	"fmt"
	"testing"
)

func TestClaimName(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"kubectl's short form":  {[]string{"pvc/data"}, "data"},
		"two words":             {[]string{"pvc", "data"}, "data"},
		"full name":             {[]string{"PersistentVolumeClaim/data.v1"}, "data.v1"},
		"nothing":               {nil, ""},
		"another kind":          {[]string{"pod/data"}, ""},
		"path in a path":        {[]string{"pvc/data/more"}, ""},
		"no name":               {[]string{"pvc/"}, ""},
		"not a name":            {[]string{"pvc/Data"}, ""},
		"two claims at a time":  {[]string{"pvc/a", "pvc/b"}, ""},
		"more than two of them": {[]string{"pvc", "a", "b"}, ""},
	} {
		got, err := ClaimName(tc.args)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
		if err != nil && ExitCode(err) != ExitUsage {
			t.Errorf("%s: exit code %d, want %d", name, ExitCode(err), ExitUsage)
		}
	}
}

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{
		ExitOK:    nil,
		ExitError: errors.New("any"),
		ExitUsage: fmt.Errorf("wrapped: %w", Usagef("wrong")),
		ExitAct:   fmt.Errorf("wrapped: %w", ErrAct),
	} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                    "plain",
		"two\nlines\r\n and\ttabs": "two lines and tabs",
		"\x1b]0;title\x07red":      "]0;titlered",
		"no\xff UTF-8":             "no? UTF-8",
		"\u202eright to left":      "right to left",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
