package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		config Config
		want   string
	}{
		"good": {
			reason: "what tests start",
			config: Config{Name: "test-abc123", Nodes: DefaultNodes(3)},
		},
		"slash in the name": {
			reason: "the name is part of paths",
			config: Config{Name: "a/b"},
			want:   `name "a/b"`,
		},
		"dots": {
			reason: "it would be another folder",
			config: Config{Name: ".."},
			want:   `name ".."`,
		},
		"same node twice": {
			reason: "the second would take over the first one's Node object",
			config: Config{Name: "a", Nodes: []Node{{Name: "n"}, {Name: "n"}}},
			want:   "nodes[1].name",
		},
		"too many nodes": {
			reason: "their addresses and memory",
			config: Config{Name: "a", Nodes: DefaultNodes(MaxNodes + 1)},
			want:   "at most 9",
		},
		"nodes without a scheduler": {
			reason: "no Pod would ever run",
			config: Config{Name: "a", Nodes: DefaultNodes(1), WithoutScheduler: true},
			want:   "need the controller manager and the scheduler",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.config.Validate()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v, want none (%s)", err, tc.reason)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q (%s)", err, tc.want, tc.reason)
			}
		})
	}
}

func TestGates(t *testing.T) {
	got := Config{FeatureGates: map[string]bool{"CrossNamespaceVolumeDataSource": true, "Another": true}}.Gates()
	want := []string{"Another=true", "CrossNamespaceVolumeDataSource=true", "MutablePVNodeAffinity=true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWithDefaults(t *testing.T) {
	repository := t.TempDir()
	inner := filepath.Join(repository, "cluster", "some", "package")
	if err := os.MkdirAll(inner, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repository, "cluster", "go.mod"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(inner)
	t.Setenv(BuildDirVariable, "")

	got, err := Config{Nodes: []Node{{}, {Name: "big"}, {}}}.WithDefaults(func() string { return "xyz" })
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Name:       "test-xyz",
		Nodes:      []Node{{Name: "node1"}, {Name: "big"}, {Name: "node3"}},
		Repository: repository,
		BinDir:     filepath.Join(repository, ".build", "bin"),
		Root:       filepath.Join(repository, ".build", "clusters"),
		ImagesDir:  filepath.Join(repository, ".build", "images"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	t.Setenv(BuildDirVariable, "/elsewhere")
	got, err = Config{Name: "a"}.WithDefaults(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := got.Layout().Kubeconfig(), "/elsewhere/clusters/a/kubeconfig"; got != want {
		t.Errorf("kubeconfig: got %q, want %q", got, want)
	}

	t.Chdir(t.TempDir())
	t.Setenv(BuildDirVariable, "")
	if _, err := (Config{Name: "a"}).WithDefaults(nil); err == nil {
		t.Error("outside of a repository: got no error")
	}
}

func TestIDDiffersByFolder(t *testing.T) {
	one, two := ID("/a", "sluice"), ID("/b", "sluice")
	if one == two || !strings.HasPrefix(one, "sluice-") {
		t.Errorf("got %q and %q, want two that begin with the name and differ", one, two)
	}
}

func TestAddresses(t *testing.T) {
	n := Network{Index: 7}
	got := []string{
		n.Prefix().String(), n.ControlPlane().String(), n.Node(2).String(), n.Host().String(),
		PodSubnet(2).String(), FirstService().String(),
	}
	want := []string{"10.89.7.0/24", "10.89.7.1", "10.89.7.3", "10.89.7.254", "10.244.2.0/24", "10.96.0.1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "run.json")
	want := Run{Config: Config{Name: "a", Nodes: DefaultNodes(2)}, Network: Network{Index: 3}, Detached: true}
	if err := Save(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Load[Run](path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := Load[Run](path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}
