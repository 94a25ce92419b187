package clustertest

import (
	"github.com/sluice-dev/sluice/cluster/residue"
)

// Leftovers lists what clusters made and what still exists of it on this
// machine: processes, mounts, loop devices, cgroups, network links and
// namespaces, packet filter rules. Clusters that run are part of the list.
func Leftovers() ([]string, error) { return leftovers("") }

// LeftoversOf lists what still exists of one cluster.
func LeftoversOf(cluster string) ([]string, error) { return leftovers(cluster) }

func leftovers(cluster string) ([]string, error) {
	cfg, err := Config{Name: "any"}.WithDefaults(nil)
	if err != nil {
		return nil, err
	}
	items, err := residue.Find(residue.Scope{Root: cfg.Root, Cluster: cluster})
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(items))
	for _, i := range items {
		out = append(out, i.String())
	}
	return out, nil
}
