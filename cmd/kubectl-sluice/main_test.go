package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/cli"
)

func TestRun(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "")
	for name, tc := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"help":            {args: nil, out: "explain"},
		"help of a verb":  {args: []string{"release", "--help"}, out: "kubectl sluice release pvc/NAME"},
		"unknown verb":    {args: []string{"fill"}, code: cli.ExitUsage, err: `"fill" is no verb`},
		"unknown flag":    {args: []string{"explain", "--colour"}, code: cli.ExitUsage, err: "--colour"},
		"no claim":        {args: []string{"explain"}, code: cli.ExitUsage, err: "pvc/NAME"},
		"no such context": {args: []string{"explain", "pvc/data", "--kubeconfig", config, "--context", "nowhere"}, code: cli.ExitError, err: "nowhere"},
		"no such file":    {args: []string{"release", "pvc/data", "--kubeconfig", config + ".none"}, code: cli.ExitError, err: "read kubeconfig"},
	} {
		var out, err bytes.Buffer
		code := run(t.Context(), tc.args, cli.IOStreams{In: strings.NewReader(""), Out: &out, Err: &err})
		if code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(err.String(), tc.err) {
			t.Errorf("%s: exit code %d, want %d\nout: %s\nerr: %s", name, code, tc.code, &out, &err)
		}
	}
}
