package storage

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
	"github.com/sluice-dev/sluice/cluster/pki"
)

func units(t *testing.T, cfg config.Config) map[string]component.Unit {
	t.Helper()
	layout := config.Layout{Dir: t.TempDir()}
	authority, err := pki.New(layout.PKI())
	if err != nil {
		t.Fatal(err)
	}
	run := config.Run{Config: cfg}
	list, err := New(run, layout, nil, controlplane.New(run, layout, config.InsideBin, authority)).Units()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]component.Unit{}
	for _, u := range list {
		out[u.Name] = u
	}
	return out
}

func TestUnitsWithoutNodes(t *testing.T) {
	got := units(t, config.Config{Name: "a", CSIArgs: []string{"--verbose"}})
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"csi-controller", "csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller", "storage-objects"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("nothing attaches without nodes; -want +got:\n%s", diff)
	}
	for name, u := range got {
		if u.Command == nil {
			continue
		}
		args := strings.Join(u.Command.Args, " ")
		if sideCar := name != "csi-controller"; sideCar && !strings.Contains(args, "--leader-election=false") {
			t.Errorf("%s waits for a leader that nobody elects: %s", name, args)
		} else if !sideCar && !strings.Contains(args, "--verbose") {
			t.Errorf("%s lacks the caller's arguments: %s", name, args)
		}
	}
}

func TestCrossNamespaceFollowsTheGate(t *testing.T) {
	for _, on := range []bool{false, true} {
		gates := map[string]bool{"CrossNamespaceVolumeDataSource": on}
		args := units(t, config.Config{Name: "a", FeatureGates: gates})["csi-provisioner"].Command.Args
		want := "--feature-gates=CrossNamespaceVolumeDataSource=" + map[bool]string{true: "true", false: "false"}[on]
		if !slices.Contains(args, want) {
			t.Errorf("provisioner: got %q, want %q", args, want)
		}
	}
}

// TestClassesAreUnderstood holds the parameters against the driver's own parser.
func TestClassesAreUnderstood(t *testing.T) {
	for _, c := range storageClasses() {
		if _, err := topology.ParseClass(c.Parameters); err != nil {
			t.Errorf("class %q: %v", c.Name, err)
		}
	}
	for _, c := range attributesClasses() {
		if _, err := topology.ParseMutable(c.Parameters); err != nil {
			t.Errorf("attributes class %q: %v", c.Name, err)
		}
	}
}
