package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// plugin installs kubectl sluice as `make cli` does, and returns a function that
// calls it by way of kubectl, which finds it in the PATH.
func plugin(t *testing.T) func(args ...string) (out string, code int) {
	t.Helper()
	bin := t.TempDir()
	install := exec.CommandContext(t.Context(), "make", "-C", repository, "cli", "BINDIR="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("make cli: %v\n%s", err, out)
	}
	return func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(cluster.BinDir, "kubectl"), append([]string{"sluice"}, args...)...) //nolint:gosec // arguments of the tests
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return string(out), exit.ExitCode()
		case err != nil:
			t.Fatalf("kubectl sluice %s: %v", strings.Join(args, " "), err)
		}
		return string(out), 0
	}
}

// TestCLI asks the installed plugin about claims in every kind of state.
func TestCLI(t *testing.T) {
	t.Parallel()
	sluice := plugin(t)
	ns := space(t)
	hello := func(name, from string) *corev1.PersistentVolumeClaim {
		return claimFor(ns, name, immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", from)
	}
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "f", "fileContents": "x"}))
	create(t, hello("filled", "src"))
	create(t, hello("late", "no-such-source"))
	create(t, claimFor(ns, "unserved", immediate, corev1.PersistentVolumeFilesystem, "nobody.example", "Nothing", "src"))
	plain := hello("plain", "")
	plain.Spec.DataSourceRef = nil
	create(t, plain)
	succeeded(t, ns, "filled")
	reason(t, ns, "late", v1alpha1.ReasonSourceNotFound)
	eventually(t, "the plain claim is Bound", patience, func(ctx context.Context) error {
		c, err := claimOf(ctx, ns, "plain")
		if err == nil && c.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", c.Status.Phase)
		}
		return err
	})

	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"Filled":       {args: []string{"explain", "pvc/filled"}, want: []string{"filled from Hello/src", "Succeeded", "What happened:"}},
		"TwoWords":     {args: []string{"explain", "pvc", "filled"}, want: []string{"filled from Hello/src"}},
		"Late":         {args: []string{"explain", "pvc/late"}, code: 3, want: []string{"waits for its source", "SourceNotFound", `"no-such-source"`, "To do:"}},
		"Unserved":     {args: []string{"explain", "pvc/unserved"}, code: 3, want: []string{"No Populator serves Nothing.nobody.example", "To do:"}},
		"Plain":        {args: []string{"explain", "pvc/plain"}, want: []string{"names no data source"}},
		"Nowhere":      {args: []string{"explain", "pvc/nowhere"}, code: 1, want: []string{"nowhere", "not found"}},
		"OtherKind":    {args: []string{"explain", "pod/filled"}, code: 2, want: []string{`"pod" is no kind`}},
		"NoName":       {args: []string{"explain"}, code: 2, want: []string{"pvc/NAME"}},
		"Format":       {args: []string{"explain", "pvc/filled", "-o", "xml"}, code: 2, want: []string{"table or json"}},
		"Verb":         {args: []string{"exlpain", "pvc/filled"}, code: 2, want: []string{"exlpain"}},
		"NoCluster":    {args: []string{"explain", "pvc/filled", "--kubeconfig", "/no/such/file"}, code: 1, want: []string{"/no/such/file"}},
		"ReleaseDone":  {args: []string{"release", "pvc/filled", "--yes"}, want: []string{"filled"}},
		"ReleasePlain": {args: []string{"release", "pvc/plain", "--yes"}, want: []string{"plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := sluice(append(tc.args, "-n", ns)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d\n%s", code, tc.code, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			t.Logf("kubectl sluice %s\n%s", strings.Join(tc.args, " "), out)
		})
	}

	out, _ := sluice("explain", "pvc/late", "-n", ns, "-o", "json")
	var story struct{ Name, Verdict, Reason, Do string }
	if err := json.Unmarshal([]byte(out), &story); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if story.Name != "late" || story.Verdict != "SomeoneMustAct" || story.Reason != v1alpha1.ReasonSourceNotFound || story.Do == "" {
		t.Errorf("as JSON: %+v", story)
	}
}
