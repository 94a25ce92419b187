// Package supervisor runs a cluster from within its namespaces: it makes the
// network, the certificates and the nodes, starts the components, watches over
// them, tells the starter how far it is, and takes everything down again.
package supervisor

import (
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/cluster/cgroups"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/sandbox"
)

// Prepare is called by process 1 of the namespaces before the supervisor
// starts: it moves the cluster into its cgroups and into a root of its own. dir
// is the state folder on the host.
func Prepare(dir string) error {
	layout := config.Layout{Dir: dir}
	run, err := config.Load[config.Run](layout.Config())
	if err != nil {
		return err
	}
	names := make([]string, 0, len(run.Config.Nodes))
	for _, n := range run.Config.Nodes {
		names = append(names, n.Name)
	}
	if err := cgroups.Enter(run.Config.ID(), names); err != nil {
		return err
	}
	if err := os.MkdirAll(run.Config.ImagesDir, 0o755); err != nil {
		return fmt.Errorf("make folder for images: %w", err)
	}
	return sandbox.PrivateRoot(layout.Scratch(), []sandbox.Bind{
		{From: dir, To: config.Inside},
		{From: run.Config.Root, To: config.InsideRoot},
		{From: run.Config.BinDir, To: config.InsideBin, ReadOnly: true},
		{From: run.Config.ImagesDir, To: config.InsideImages},
	})
}
