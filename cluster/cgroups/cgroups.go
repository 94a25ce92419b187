// Package cgroups gives a cluster and each of its nodes a cgroup of their own
// in every hierarchy of the machine, version 1 or 2.
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Prefix begins the name of every cluster's cgroup.
const Prefix = "sluice-"

// Root returns the path within a hierarchy of the cgroup of the cluster with
// that ID.
func Root(id string) string { return "/" + Prefix + id }

// NodeRoot returns the path of a node's cgroup within a hierarchy: what its
// kubelet takes as root.
func NodeRoot(id, node string) string { return Root(id) + "/" + node }

// system is where the processes that are not in a Pod live. In version 2 a
// group with children has no processes itself.
const system = "system"

// Hierarchy is one mounted cgroup tree.
type Hierarchy struct {
	// Dir is the mount point.
	Dir string
	// Controllers are the controllers of a version 1 hierarchy, or its name.
	Controllers []string
	// Version2 is true for the unified hierarchy.
	Version2 bool
}

// Hierarchies returns the cgroup trees that this process sees mounted.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	out := parseMounts(f)
	if len(out) == 0 {
		return nil, errors.New("find cgroups: none mounted below /sys/fs/cgroup")
	}
	return out, nil
}

// parseMounts picks the cgroup trees out of a mountinfo file.
func parseMounts(mountinfo io.Reader) []Hierarchy {
	var out []Hierarchy
	for s := bufio.NewScanner(mountinfo); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(kind) < 3 || slices.ContainsFunc(out, func(h Hierarchy) bool { return h.Dir == mount[4] }) {
			continue
		}
		switch kind[0] {
		case "cgroup":
			out = append(out, Hierarchy{Dir: mount[4], Controllers: controllers(kind[2])})
		case "cgroup2":
			out = append(out, Hierarchy{Dir: mount[4], Version2: true})
		}
	}
	return out
}

// controllers picks the controllers out of a super block's options.
func controllers(options string) []string {
	return slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return o == "rw" || o == "ro" || o == "xattr" || strings.HasPrefix(o, "release_agent=")
	})
}

// Enter makes the cluster's cgroups and those of its nodes, and moves the
// calling process into the cluster's. What it starts later is in there, too.
func Enter(id string, nodes []string) error {
	hs, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hs {
		groups := []string{Root(id), filepath.Join(Root(id), system)}
		for _, n := range nodes {
			groups = append(groups, NodeRoot(id, n))
		}
		for _, group := range groups {
			if err := h.create(group); err != nil {
				return err
			}
		}
		if err := h.move(0, filepath.Join(Root(id), system)); err != nil {
			return err
		}
	}
	return nil
}

// create makes one group whose parent exists and makes it usable: processors
// and memory nodes of a version 1 cpuset are inherited, controllers of version
// 2 handed down.
func (h Hierarchy) create(group string) error {
	dir := filepath.Join(h.Dir, group)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if h.Version2 {
		return handDown(filepath.Dir(dir))
	}
	if !slices.Contains(h.Controllers, "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return fmt.Errorf("read cpuset of the parent: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return fmt.Errorf("set cpuset: %w", err)
		}
	}
	return nil
}

// handDown lets the children of a version 2 group use its controllers. One that
// the kernel keeps back (cpu with real-time processes, for example) is left out.
func handDown(dir string) error {
	names, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	for _, name := range strings.Fields(string(names)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("hand controller %q down: %w", name, err)
		}
	}
	return nil
}

// move puts a process (0 = the caller) into a group.
func (h Hierarchy) move(pid int, group string) error {
	file := filepath.Join(h.Dir, group, "cgroup.procs")
	if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("move process %d into cgroup: %w", pid, err)
	}
	return nil
}

// Leave moves processes of the cluster back to the top of every hierarchy, so
// that the cluster's groups can be removed while these go on.
func Leave(pids ...int) error {
	hs, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hs {
		for _, pid := range pids {
			if err := h.move(pid, "/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find returns the folders of clusters' top cgroups: of the cluster with that
// ID, or of all if it is empty.
func Find(id string) ([]string, error) {
	hs, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	pattern := Prefix + id
	if id == "" {
		pattern += "*"
	}
	var out []string
	for _, h := range hs {
		found, err := filepath.Glob(filepath.Join(h.Dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("find cgroups of %q: %w", id, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// Remove kills what is left in a group and those below, and removes them. A
// killed process takes a moment to leave, which is waited for.
func Remove(dir string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := removeTree(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list processes of cgroup: %w", err)
	}
	for _, pid := range strings.Fields(string(procs)) {
		if n, err := strconv.Atoi(pid); err == nil && n > 1 {
			_ = syscall.Kill(n, syscall.SIGKILL) // gone already: fine
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}
