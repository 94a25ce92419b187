// Package storage connects the simulated storage driver to a cluster the way a
// vendor's driver is: with the CSI project's side-cars beside its controller
// and the kubelet's plugin registration on every node.
package storage

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/node"
)

// Objects is the name of the unit that is ready when the storage classes and
// all other objects of the driver exist.
const Objects = "storage-objects"

const controller = "csi-controller"

// metricsPort is that of the first side-car; the others follow. They listen on
// the loopback address of the cluster's network namespace.
const metricsPort = 29601

// Storage is the driver of one cluster.
type Storage struct {
	run    config.Run
	layout config.Layout
	nodes  []*node.Node
	plan   *controlplane.Plan
}

// New describes the driver of a cluster.
func New(run config.Run, layout config.Layout, nodes []*node.Node, plan *controlplane.Plan) *Storage {
	return &Storage{run: run, layout: layout, nodes: nodes, plan: plan}
}

// NodeService returns the name of the unit that serves the driver on a node.
func NodeService(node string) string { return "csi-node-" + node }

func (s *Storage) socket() string { return filepath.Join(s.layout.Dir, "csi.sock") }
func (s *Storage) state() string  { return s.layout.Storage(s.run.Config.ID()) }

// Units returns the driver's programs, the side-cars and the objects.
func (s *Storage) Units() ([]component.Unit, error) {
	kubeconfig, err := s.plan.Kubeconfig("csi-side-cars", "csi-side-cars", "system:masters")
	if err != nil {
		return nil, err
	}
	units := []component.Unit{
		{
			Name:  Objects,
			After: []string{controlplane.APIServer},
			Step:  applier{kubeconfig: kubeconfig, crossNamespace: s.crossNamespace()}.apply,
		},
		{
			Name: controller,
			Command: &component.Command{
				Path: filepath.Join(config.InsideBin, "sluice-csi-sim"),
				Args: append([]string{
					"--mode=controller",
					"--endpoint=unix://" + s.socket(),
					"--state-dir=" + s.state(),
				}, s.run.Config.CSIArgs...),
				Ready: component.Socket(s.socket()),
			},
		},
	}
	for i, c := range s.sideCars() {
		metrics := fmt.Sprintf("127.0.0.1:%d", metricsPort+i)
		args := append([]string{
			"--kubeconfig=" + kubeconfig,
			"--leader-election=false",
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			"--http-endpoint=" + metrics,
			"--retry-interval-start=250ms",
			"--retry-interval-max=10s",
		}, c.args...)
		if c.name != "snapshot-controller" {
			args = append(args, "--csi-address="+s.socket())
		}
		units = append(units, component.Unit{
			Name:     c.name,
			After:    []string{controller, controlplane.APIServer, Objects},
			Deadline: 2 * time.Minute,
			Command: &component.Command{
				Path:  filepath.Join(config.InsideBin, c.name),
				Args:  args,
				Ready: component.HTTP("http://"+metrics+"/metrics", nil),
			},
		})
	}
	for _, n := range s.nodes {
		units = append(units, s.nodeService(n))
	}
	return units, nil
}

// sideCar is one of the CSI project's programs beside the driver's controller.
type sideCar struct {
	name string
	args []string
}

func (s *Storage) sideCars() []sideCar {
	cars := []sideCar{
		{"csi-provisioner", []string{
			"--extra-create-metadata",
			"--default-fstype=ext4",
			"--timeout=60s",
			fmt.Sprintf("--feature-gates=CrossNamespaceVolumeDataSource=%t", s.crossNamespace()),
		}},
		{"csi-resizer", []string{
			"--extra-modify-metadata",
			"--resize-timeout=60s",
			"--modify-timeout=60s",
			"--workers=50",
		}},
		{"csi-snapshotter", []string{
			"--extra-create-metadata",
			"--timeout=60s",
			"--feature-gates=CSIVolumeGroupSnapshot=false",
		}},
		{"snapshot-controller", []string{"--feature-gates=CSIVolumeGroupSnapshot=false"}},
	}
	if len(s.nodes) == 0 {
		// Without nodes nothing is attached.
		return cars
	}
	return append(cars, sideCar{"csi-attacher", []string{
		"--default-fstype=ext4",
		"--timeout=60s",
		"--worker-threads=50",
	}})
}

// crossNamespace says whether claims may name a source in another namespace.
func (s *Storage) crossNamespace() bool {
	for _, g := range s.run.Config.Gates() {
		if g == "CrossNamespaceVolumeDataSource=true" {
			return true
		}
	}
	return false
}

// nodeService is the driver's part on one node, in that node's mounts.
func (s *Storage) nodeService(n *node.Node) component.Unit {
	socket := filepath.Join(node.KubeletRoot, "plugins", driver.Name, "csi.sock")
	t := n.Topology()
	generations := make([]string, 0, len(t.Generations))
	for _, g := range t.Generations {
		generations = append(generations, string(g))
	}
	return component.Unit{
		Name: NodeService(n.Name),
		// The kubelet watches the folder that it is registered in.
		After: []string{n.Kubelet()},
		Command: &component.Command{
			Path: filepath.Join(config.InsideBin, "sluice-csi-sim"),
			Args: append([]string{
				"--mode=node",
				"--endpoint=unix://" + socket,
				"--state-dir=" + s.state(),
				"--node-id=" + t.ID,
				"--zone=" + t.Zone,
				"--region=" + t.Region,
				"--generation=" + strings.Join(generations, ","),
				"--kubelet-registration-dir=" + filepath.Join(node.KubeletRoot, "plugins_registry"),
			}, s.run.Config.CSIArgs...),
			Namespace: n.Thread(),
			Ready:     component.Socket(filepath.Join(s.layout.Node(n.Name), "kubelet", "plugins", driver.Name, "csi.sock")),
		},
	}
}
