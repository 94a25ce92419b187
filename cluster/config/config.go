// Package config says what an embedded cluster is made of: how many real
// nodes, which feature gates, whether there is storage. It holds no behaviour
// but defaults and validation, so that the command line, the Go tests and the
// supervisor inside the cluster's namespaces share one description.
package config

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"

	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// Kubernetes is the version of the API server, controllers and kubelets.
const (
	Kubernetes      = "v1.37.2"
	KubernetesMajor = "1"
	KubernetesMinor = "37"
)

// Config describes one cluster. The zero value is a control plane without
// nodes, with the default gates and a name of its own.
type Config struct {
	// Name tells clusters on one machine apart. It is part of cgroup and
	// folder names. Default: test-<six random characters>.
	Name string `json:"name"`
	// Nodes are the real nodes: each has a containerd, a kubelet and a
	// kube-proxy. Empty means control plane only.
	Nodes []Node `json:"nodes,omitempty"`
	// FeatureGates are merged over DefaultFeatureGates and given to every
	// Kubernetes component.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// WithoutControllerManager leaves kube-controller-manager out.
	WithoutControllerManager bool `json:"withoutControllerManager,omitempty"`
	// WithoutScheduler leaves kube-scheduler out.
	WithoutScheduler bool `json:"withoutScheduler,omitempty"`
	// CSI runs the simulated storage driver with the real side-cars, and makes
	// its storage classes, snapshot class and volume attributes classes.
	// Without nodes only the controller part runs.
	CSI bool `json:"csi,omitempty"`
	// CSIArgs are added to the command line of every part of the driver.
	CSIArgs []string `json:"csiArgs,omitempty"`
	// AuditLog writes one line per API request to the file that the cluster's
	// handle names.
	AuditLog bool `json:"auditLog,omitempty"`
	// APIServerArgs are added to kube-apiserver's command line.
	APIServerArgs []string `json:"apiServerArgs,omitempty"`
	// Repository is the folder that the defaults below are relative to.
	// Default: the first folder above the working directory that holds the
	// cluster module.
	Repository string `json:"repository,omitempty"`
	// ImagesDir holds the images that the cluster's registry serves. Default:
	// <repository>/.build/images.
	ImagesDir string `json:"imagesDir,omitempty"`
	// BinDir holds the programs. Default: <repository>/.build/bin.
	BinDir string `json:"binDir,omitempty"`
	// Root is where clusters keep their state, each in a folder of its name.
	// Default: <repository>/.build/clusters.
	Root string `json:"root,omitempty"`
}

// Node describes one real node.
type Node struct {
	// Name is the Node object's name. Default: node1, node2, …
	Name string `json:"name"`
	// Zone, Region and Generations, the disk generations that it can attach,
	// are the storage driver's topology on this node and its labels.
	Zone        string                `json:"zone"`
	Region      string                `json:"region"`
	Generations []topology.Generation `json:"generations,omitempty"`
	// Labels are further labels.
	Labels map[string]string `json:"labels,omitempty"`
}

// MaxNodes is how many real nodes fit on one cluster network.
const MaxNodes = 9

// DefaultNodes returns n nodes of one region, each in a zone of its own. From
// the third on they attach disks of the older generation only.
func DefaultNodes(n int) []Node {
	nodes := make([]Node, 0, n)
	for i := range n {
		node := Node{
			Name:        fmt.Sprintf("node%d", i+1),
			Zone:        fmt.Sprintf("zone-%c", 'a'+i),
			Region:      "region-1",
			Generations: topology.Generations,
		}
		if i >= 2 {
			node.Generations = []topology.Generation{topology.Gen1}
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// DefaultFeatureGates returns the gates that a cluster starts with.
func DefaultFeatureGates() map[string]bool {
	return map[string]bool{
		"MutablePVNodeAffinity":          true,
		"CrossNamespaceVolumeDataSource": false,
	}
}

// Gates returns the gates in force, sorted, as name=value.
func (c Config) Gates() []string {
	gates := DefaultFeatureGates()
	maps.Copy(gates, c.FeatureGates)
	out := make([]string, 0, len(gates))
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		out = append(out, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return out
}

// Topology returns the node as the storage driver sees it.
func (n Node) Topology() topology.Node {
	return topology.Node{ID: n.Name, Zone: n.Zone, Region: n.Region, Generations: n.Generations}
}

// AllLabels returns every label the node registers with.
func (n Node) AllLabels() map[string]string {
	labels := n.Topology().Segments()
	maps.Copy(labels, n.Labels)
	return labels
}

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Validate says what is wrong with the description, naming the field.
func (c Config) Validate() error {
	if !namePattern.MatchString(c.Name) {
		return fmt.Errorf("name %q: must be 1 to 32 lower-case letters, digits and dashes", c.Name)
	}
	if len(c.Nodes) > MaxNodes {
		return fmt.Errorf("nodes: %d asked for, at most %d fit", len(c.Nodes), MaxNodes)
	}
	seen := map[string]bool{}
	for i, n := range c.Nodes {
		if !namePattern.MatchString(n.Name) {
			return fmt.Errorf("nodes[%d].name %q: must be 1 to 32 lower-case letters, digits and dashes", i, n.Name)
		}
		if seen[n.Name] {
			return fmt.Errorf("nodes[%d].name %q: used twice", i, n.Name)
		}
		seen[n.Name] = true
	}
	if len(c.Nodes) > 0 && (c.WithoutControllerManager || c.WithoutScheduler) {
		return fmt.Errorf("nodes: real nodes need the controller manager and the scheduler")
	}
	return nil
}

// The address ranges inside a cluster. They are the same in every cluster,
// because none of them leaves the cluster's own network namespaces.
var (
	// ServiceRange holds the cluster addresses of Services.
	ServiceRange = netip.MustParsePrefix("10.96.0.0/16")
	// PodRange is divided among the nodes, one /24 each.
	PodRange = netip.MustParsePrefix("10.244.0.0/16")
)

// PodSubnet returns the range of the node with that index (0 = first).
func PodSubnet(index int) netip.Prefix {
	b := PodRange.Addr().As4()
	b[2] = byte(index)
	return netip.PrefixFrom(netip.AddrFrom4(b), 24)
}

// FirstService returns the address of the Service default/kubernetes.
func FirstService() netip.Addr { return ServiceRange.Addr().Next() }
