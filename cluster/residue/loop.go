package residue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/csi/disk"
)

// file identifies a file whatever its name is in a mount namespace.
type file struct{ dev, ino uint64 }

func loops(s Scope) ([]Item, error) {
	return loopsOf(filepath.Join(s.Root, s.Cluster), s.Cluster)
}

// DetachLoops frees the loop devices of a cluster whose state is seen at dir.
// One that is still mounted goes with the last mount.
func DetachLoops(dir, cluster string) error {
	items, err := loopsOf(dir, cluster)
	if err != nil {
		return err
	}
	for _, i := range items {
		if err := i.remove(); err != nil {
			return err
		}
	}
	return nil
}

// loopsOf returns the loop devices whose backing file is one of a cluster's: it
// lies in the state folder, or carries the cluster's name although it was
// unlinked or its mount is gone, or is itself such a loop device's node.
func loopsOf(dir, cluster string) ([]Item, error) {
	all, err := disk.Loops()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ours, err := files(dir)
	if err != nil {
		return nil, err
	}
	mark := filepath.Base(config.Layout{}.Storage(cluster))
	if cluster != "" {
		mark += "/"
	}
	var items []Item
	for again := true; again; {
		again = false
		for i, l := range all {
			if l.Path == "" {
				continue
			}
			if !strings.Contains(l.Backing, mark) && !ours[backing(l)] {
				continue
			}
			var node syscall.Stat_t
			if err := syscall.Stat(l.Path, &node); err == nil {
				ours[file{node.Dev, node.Ino}] = true
				again = true // a device on this device is ours, too
			}
			items = append(items, Item{Kind: KindLoop, Name: l.Path + " (" + l.Backing + ")", remove: func() error { return detach(l) }})
			all[i] = disk.Loop{}
		}
	}
	return items, nil
}

// detach frees a loop device; one in use goes with its last user.
func detach(l disk.Loop) error {
	f, err := os.Open(l.Path)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", l.Path, err)
	}
	return nil
}

// backing asks the kernel for the identity of a loop device's file; the zero
// value stands for none.
func backing(l disk.Loop) file {
	f, err := os.Open(l.Path)
	if err != nil {
		return file{} // detached meanwhile
	}
	defer f.Close() //nolint:errcheck // only asked
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return file{}
	}
	return file{info.Device, info.Inode}
}

// files returns the identity of every regular file below dir.
func files(dir string) (map[file]bool, error) {
	ours := map[file]bool{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			ours[file{stat.Dev, stat.Ino}] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files of %q: %w", dir, err)
	}
	return ours, nil
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
