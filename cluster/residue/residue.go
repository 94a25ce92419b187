// Package residue knows everything that a cluster makes on a machine, finds
// what still exists of it, and removes it. It goes by what the machine shows,
// not by what a cluster noted, so it also works after a crash.
package residue

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/cluster/config"
)

// Kind says what sort of thing was left.
type Kind string

// The kinds of things that clusters make, in the order in which they are
// removed.
const (
	KindProcess   Kind = "process"
	KindMount     Kind = "mount"
	KindLoop      Kind = "loop device"
	KindCgroup    Kind = "cgroup"
	KindLink      Kind = "network link"
	KindNamespace Kind = "network namespace"
	KindRule      Kind = "packet filter rule"
	KindState     Kind = "state folder"
)

// Item is one thing that was left.
type Item struct {
	Kind Kind
	// Name is what the machine calls it.
	Name string

	remove func() error
}

// String describes the item for people.
func (i Item) String() string { return fmt.Sprintf("%s %s", i.Kind, i.Name) }

// Scope says whose things are looked for.
type Scope struct {
	// Root is the folder that holds the clusters' state folders.
	Root string
	// Cluster is one cluster's name; empty means every cluster below Root, and
	// what can no longer be told apart.
	Cluster string
}

// id is the cluster's ID; empty for all.
func (s Scope) id() string {
	if s.Cluster == "" {
		return ""
	}
	return config.ID(s.Root, s.Cluster)
}

// Find returns everything of the scope that still exists, state folders
// excepted.
func Find(s Scope) ([]Item, error) {
	var items []Item
	for _, find := range []func(Scope) ([]Item, error){processes, mounts, loops, groups, links, namespaces, rules} {
		found, err := find(s)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	return items, nil
}

// Remove removes everything of one cluster and finally its state folder. Its
// processes are killed; a cluster that runs should have been told to stop
// before. It fails if something stays, naming it.
func Remove(s Scope) error {
	if s.Cluster == "" {
		return errors.New("remove a cluster: no name given")
	}
	// Removing processes frees what they held, so what is left is looked for
	// again; two rounds suffice, a third shows what stays.
	var errs []error
	for range 3 {
		items, err := Find(s)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return removeState(s)
		}
		errs = nil
		for _, i := range items {
			if err := i.remove(); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", i, err))
			}
		}
	}
	items, err := Find(s)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return removeState(s)
	}
	return errors.Join(append(errs, fmt.Errorf("remove cluster %q: still there: %s", s.Cluster, names(items)))...)
}

func names(items []Item) string {
	out := make([]string, 0, len(items))
	for _, i := range items {
		out = append(out, i.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
