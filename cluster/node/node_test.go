package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/pki"
)

// newNode returns the second of two nodes, with its files in a test's folder
// and no namespaces.
func newNode(t *testing.T) *Node {
	t.Helper()
	layout := config.Layout{Dir: t.TempDir()}
	authority, err := pki.New(layout.PKI())
	if err != nil {
		t.Fatal(err)
	}
	run := config.Run{
		Config: config.Config{
			Name: "a", Root: "/clusters", Nodes: config.DefaultNodes(2),
			FeatureGates: map[string]bool{"MutablePVNodeAffinity": false},
		},
		Network: config.Network{Index: 4},
	}
	return &Node{
		Node: run.Config.Nodes[1], run: run, layout: layout, index: 1, ca: authority.CAFile(),
		plan: controlplane.New(run, layout, "/bin", authority),
	}
}

func units(t *testing.T, n *Node) map[string]component.Unit {
	t.Helper()
	list, err := n.Units()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]component.Unit{}
	for _, u := range list {
		out[u.Name] = u
	}
	return out
}

func TestKubelet(t *testing.T) {
	n := newNode(t)
	args := strings.Join(units(t, n)["kubelet-node2"].Command.Args, " ")
	for _, want := range []string{
		"--node-ip=10.89.4.2",
		"--hostname-override=node2",
		"topology.kubernetes.io/zone=zone-b",
		"sim.csi.sluice.dev/gen1=true",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("arguments: got %q, want %q among them", args, want)
		}
	}
	var got struct {
		CgroupRoot   string
		FeatureGates map[string]bool
		ClusterDNS   []string
	}
	data, err := os.ReadFile(n.kubeletConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := "/sluice-" + config.ID("/clusters", "a") + "/node2"; got.CgroupRoot != want {
		t.Errorf("cgroup: got %q, want %q", got.CgroupRoot, want)
	}
	if on, set := got.FeatureGates["MutablePVNodeAffinity"]; on || !set {
		t.Errorf("gates: got %v, want the caller's", got.FeatureGates)
	}
	if len(got.ClusterDNS) == 0 {
		t.Error("without an address for names every Pod gets a warning event")
	}
}

func TestNodesDoNotShare(t *testing.T) {
	n := newNode(t)
	units(t, n)
	data, err := os.ReadFile(n.networkConfig())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"subnet": "10.244.1.0/24"`) {
		t.Errorf("Pod network: got %s, want the second node's range", data)
	}
	toml, err := os.ReadFile(n.containerdConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{filepath.Join(n.dir(), "containerd"), n.mirrors(), "cluster.sluice.dev/pause"} {
		if !strings.Contains(string(toml), want) {
			t.Errorf("containerd: %q is missing in\n%s", want, toml)
		}
	}
}

func TestMasksHoldWhatTheKubeletWants(t *testing.T) {
	n := newNode(t)
	if err := n.writeMasks(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(n.masks(), "kernel", "panic"))
	if err != nil || string(got) != "10\n" {
		t.Errorf("got %q, %v", got, err)
	}
}
