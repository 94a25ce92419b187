package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/residue"
)

// Known is a cluster that runs or left something.
type Known struct {
	Name   string
	Layout config.Layout
	// Running is true if its processes exist.
	Running bool
	// Attached is true if it belongs to a running process, such as a test, and
	// ends with that.
	Attached bool
	// Status is the last that it told; the zero value if nothing.
	Status config.Status
}

// List returns the clusters below root, by name.
func List(root string) ([]Known, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	inits, err := residue.Inits(root)
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for _, i := range inits {
		name := filepath.Base(i.Dir)
		running[name] = true
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	known := make([]Known, 0, len(names))
	for _, name := range names {
		k := Known{Name: name, Layout: config.Layout{Dir: filepath.Join(root, name)}, Running: running[name]}
		// A cluster that has only begun, or that crashed, has one file, both or
		// neither; what is there is shown.
		k.Status, _ = config.Load[config.Status](k.Layout.Status())
		run, err := config.Load[config.Run](k.Layout.Config())
		k.Attached = k.Running && (err != nil || !run.Detached && run.Starter.Runs())
		known = append(known, k)
	}
	return known, nil
}

// Down stops the cluster of that name, whoever started it and whatever became
// of it, and removes everything that it made. One that is not there is no
// error.
func Down(root, name string) error {
	first, running, err := residue.FindInit(filepath.Join(root, name))
	if err != nil {
		return err
	}
	if running {
		if err := first.Terminate(stopGrace); err != nil {
			return err
		}
	}
	return residue.Remove(residue.Scope{Root: root, Cluster: name})
}
