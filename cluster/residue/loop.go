package residue

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/csi/disk"
)

func loops(s Scope) ([]Item, error) {
	all, err := disk.Loops()
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var items []Item
	for _, l := range ours(all, s.id(), nodeOf, backingOf) {
		items = append(items, Item{
			Kind:   KindLoop,
			Name:   fmt.Sprintf("%s (%s)", l.Path, l.Backing),
			remove: func() error { return detach(l.Path) },
		})
	}
	return items, nil
}

// DetachLoops frees the loop devices of the cluster with that ID. One that is
// in use goes with its last user.
func DetachLoops(id string) error {
	all, err := disk.Loops()
	if err != nil {
		return fmt.Errorf("list loop devices: %w", err)
	}
	for _, l := range ours(all, id, nodeOf, backingOf) {
		if err := detach(l.Path); err != nil {
			return err
		}
	}
	return nil
}

// file identifies a file whatever its name is in a mount namespace.
type file struct{ dev, ino uint64 }

// ours picks the loop devices of the cluster with that ID, or of all clusters
// if it is empty: their backing file is in a storage folder, which its path
// shows even if the file was unlinked or its mount is gone; or it is itself the
// node of such a device, as the kubelet makes for raw block volumes. node and
// backing identify a device's node and its backing file.
func ours(all []disk.Loop, id string, node, backing func(path string) (file, bool)) []disk.Loop {
	mark := "/" + config.StoragePrefix
	if id != "" {
		mark += id + "/"
	}
	var out []disk.Loop
	nodes := map[file]bool{}
	for again := true; again; {
		again = false
		var others []disk.Loop
		for _, l := range all {
			f, ok := backing(l.Path)
			if !strings.Contains(l.Backing, mark) && (!ok || !nodes[f]) {
				others = append(others, l)
				continue
			}
			out, again = append(out, l), true
			if f, ok := node(l.Path); ok {
				nodes[f] = true
			}
		}
		all = others
	}
	return out
}

func nodeOf(path string) (file, bool) {
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		return file{}, false
	}
	return file{stat.Dev, stat.Ino}, true
}

// backingOf asks the kernel for the identity of a loop device's file.
func backingOf(path string) (file, bool) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, false // detached meanwhile
	}
	defer f.Close() //nolint:errcheck // only asked
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return file{}, false
	}
	return file{info.Device, info.Inode}, true
}

// detach frees a loop device; one in use goes with its last user.
func detach(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", path, err)
	}
	return nil
}
