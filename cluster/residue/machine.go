package residue

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/cgroups"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/network"
)

// mounts returns mounts on this side of the clusters' namespaces, the deepest
// first. A cluster makes none there; one that a person made to look at a volume
// would keep the state folder.
func mounts(s Scope) ([]Item, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	prefix := filepath.Join(s.Root, s.Cluster) + "/"
	var items []Item
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 5 || !strings.HasPrefix(fields[4]+"/", prefix) {
			continue
		}
		dir := fields[4]
		items = append(items, Item{Kind: KindMount, Name: dir, remove: func() error {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
			return nil
		}})
	}
	slices.Reverse(items)
	return items, nil
}

func groups(s Scope) ([]Item, error) {
	dirs, err := cgroups.Find(s.id())
	if err != nil {
		return nil, err
	}
	items := make([]Item, 0, len(dirs))
	for _, dir := range dirs {
		items = append(items, Item{Kind: KindCgroup, Name: dir, remove: func() error { return cgroups.Remove(dir) }})
	}
	return items, nil
}

func links(s Scope) ([]Item, error) {
	found, err := network.HostLinks()
	if err != nil {
		return nil, err
	}
	var items []Item
	for name, owner := range found {
		if s.Cluster == "" || owner == filepath.Join(s.Root, s.Cluster) {
			items = append(items, Item{Kind: KindLink, Name: name, remove: func() error { return network.RemoveLink(name) }})
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// namespaces returns named network namespaces of ours. Clusters name none on
// this side, so there is nothing to remove for one of them.
func namespaces(s Scope) ([]Item, error) {
	if s.Cluster != "" {
		return nil, nil
	}
	found, err := filepath.Glob("/run/netns/" + network.HostLinkPrefix + "*")
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	items := make([]Item, 0, len(found))
	for _, path := range found {
		items = append(items, Item{Kind: KindNamespace, Name: path})
	}
	return items, nil
}

// rules returns packet filter rules on this side that name a cluster's
// addresses. Clusters make none there, so there is nothing to remove for one of
// them.
func rules(s Scope) ([]Item, error) {
	program, err := exec.LookPath("iptables-save")
	if s.Cluster != "" || err != nil {
		return nil, nil //nolint:nilerr // without the program there are no rules of ours
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		return nil, fmt.Errorf("list packet filter rules: %w", err)
	}
	var items []Item
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "10.89.") || strings.Contains(line, config.PodRange.Addr().String()) || strings.Contains(line, "sluice") {
			items = append(items, Item{Kind: KindRule, Name: strings.TrimSpace(line)})
		}
	}
	return items, nil
}

// removeState removes a cluster's state folder. Nothing is mounted in it any
// more.
func removeState(s Scope) error {
	if err := os.RemoveAll(filepath.Join(s.Root, s.Cluster)); err != nil {
		return fmt.Errorf("remove state of cluster %q: %w", s.Cluster, err)
	}
	return nil
}
