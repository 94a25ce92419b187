package controlplane

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/pki"
)

func units(t *testing.T, cfg config.Config) []component.Unit {
	t.Helper()
	layout := config.Layout{Dir: t.TempDir()}
	authority, err := pki.New(layout.PKI())
	if err != nil {
		t.Fatal(err)
	}
	run := config.Run{Config: cfg, Network: config.Network{Index: 4}}
	list, err := New(run, layout, "/bin", authority).Units()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func names(units []component.Unit) []string {
	var out []string
	for _, u := range units {
		out = append(out, u.Name)
	}
	return out
}

func TestUnits(t *testing.T) {
	cases := map[string]struct {
		reason string
		config config.Config
		want   []string
	}{
		"all": {
			reason: "the default",
			want:   []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"},
		},
		"without scheduler": {
			reason: "tests without Pods start faster",
			config: config.Config{WithoutScheduler: true},
			want:   []string{"etcd", "kube-apiserver", "kube-controller-manager"},
		},
		"API alone": {
			reason: "a test may want to be the only one who writes",
			config: config.Config{WithoutScheduler: true, WithoutControllerManager: true},
			want:   []string{"etcd", "kube-apiserver"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, names(units(t, tc.config))); diff != "" {
				t.Errorf("%s; -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestFilesExist checks that every file that a command line names was written.
func TestFilesExist(t *testing.T) {
	for _, u := range units(t, config.Config{Name: "a", AuditLog: true}) {
		for _, arg := range u.Command.Args {
			name, path, _ := strings.Cut(arg, "=")
			if !strings.HasPrefix(path, "/") || strings.HasSuffix(name, "-dir") || name == "--audit-log-path" {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s: %v", u.Name, name, err)
			}
		}
	}
}

func TestAPIServerArguments(t *testing.T) {
	list := units(t, config.Config{
		Name:          "a",
		FeatureGates:  map[string]bool{"MutablePVNodeAffinity": false},
		APIServerArgs: []string{"--max-requests-inflight=9"},
	})
	args := list[slices.Index(names(list), APIServer)].Command.Args
	for _, want := range []string{
		"--advertise-address=10.89.4.1",
		"--feature-gates=CrossNamespaceVolumeDataSource=false,MutablePVNodeAffinity=false",
		"--max-requests-inflight=9",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("got %q, want %q among them", args, want)
		}
	}
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--audit-log-path") }) {
		t.Error("the audit log is written although nobody asked for it")
	}
}
