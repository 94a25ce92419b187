package plugin

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// What all tests share.
var (
	cluster *clustertest.Cluster
	folder  = filepath.Join("..", "..", "..", "..", "examples", "plugin-go")
)

// patience bounds how long a test waits for one thing on a slow machine.
const patience = 90 * time.Second

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	sluice, err := helm.BuildSluice(context.Background(), config.Config{Name: "e2e-plugin"}, nil)
	if err == nil {
		sluice.Values, err = withExample(sluice.Values)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return clustertest.Main(m, clustertest.Config{Nodes: clustertest.Nodes(1), CSI: true}, func(c *clustertest.Cluster) error {
		cluster, sluice.Kubeconfig = c, c.Kubeconfig
		ctrllog.SetLogger(logr.Discard())
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if _, err := sluice.Install(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, managers(ctx))
		}
		return nil
	})
}

// withExample are the values of a release with those of the example over them.
func withExample(values map[string]any) (map[string]any, error) {
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read values of the example: %w", err)
	}
	example := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &example); err != nil {
		return nil, fmt.Errorf("read values of the example: %w", err)
	}
	all := maps.Clone(values)
	maps.Copy(all, example)
	return all, nil
}

// kubectl runs the real kubectl and returns what it printed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.BinDir, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...) //nolint:gosec // arguments of the tests
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// must is kubectl for a step that has to work.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// apply applies a file of the example.
func apply(t *testing.T, namespace, file string) {
	t.Helper()
	if out := must(t, "-n", namespace, "apply", "-f", filepath.Join(folder, file)); strings.Contains(out, "Warning") {
		t.Errorf("kubectl apply -f %s warns: %s", file, out)
	}
}

// managers are the manager's Pods and the ends of their containers' logs.
func managers(ctx context.Context) string {
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-o", "wide"},
		{"get", "events"},
		{"logs", "deployment/sluice-manager", "-c", "hello", "--tail=20"},
		{"logs", "deployment/sluice-manager", "-c", "manager", "--tail=60"},
	} {
		text, err := kubectl(ctx, append([]string{"-n", helm.Namespace}, args...)...)
		fmt.Fprintf(&out, "kubectl %s (%v):\n%s\n", strings.Join(args, " "), err, text)
	}
	return out.String()
}

// space makes a namespace that is gone, with all in it, when the test ends. If the
// test fails, it first prints what happened there.
func space(t *testing.T, name string) string {
	t.Helper()
	must(t, "create", "namespace", name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if t.Failed() {
			for _, args := range [][]string{{"get", "events"}, {"get", "pods,pvc,populations", "-o", "wide"}, {"get", "populators", "-o", "yaml"}} {
				out, err := kubectl(ctx, append([]string{"-n", name}, args...)...)
				t.Logf("kubectl %s (%v):\n%s", strings.Join(args, " "), err, out)
			}
			t.Log(managers(ctx))
		}
		if out, err := kubectl(ctx, "delete", "namespace", name, "--wait"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return name
}

// eventually calls check until it returns nil, and fails the test with its
// last answer if it does not in time.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, what, patience, check)
}
