package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrWrittenTo is returned by Consistent for an image that was written to all
// the time.
var ErrWrittenTo = errors.New("the disk was being written to in every attempt to copy it")

const (
	copyTries = 20
	copyPause = 50 * time.Millisecond
)

// Consistent reads an image as it is at one moment, with all that was written
// to the file system on it before: read is called, again if need be, until the
// disk was not written to meanwhile. Nothing is held still, because what a
// killed process holds still stays so; and there is quiet enough, because what
// programs write reaches the disk in bursts, the last one here, at the start.
func Consistent(ctx context.Context, image string, read func() error) (err error) {
	d, ok, err := Open(image)
	if err != nil {
		return err
	}
	if !ok {
		return read()
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for range copyTries {
		if err := d.flush(); err != nil {
			return err
		}
		before, quiet, err := d.activity()
		if err != nil {
			return err
		}
		if err := read(); err != nil {
			return err
		}
		after, stillQuiet, err := d.activity()
		if err != nil {
			return err
		}
		if quiet && stillQuiet && before == after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(copyPause):
		}
	}
	return fmt.Errorf("copy %q: %w", filepath.Base(image), ErrWrittenTo)
}

// flush brings what was written to the device, and to the file system on it, to
// the image.
func (d *Device) flush() error {
	root, err := openMounted(d.Dev())
	if err != nil {
		return err
	}
	if root != nil {
		err = unix.Syncfs(int(root.Fd()))
		if err = errors.Join(err, root.Close()); err != nil {
			return fmt.Errorf("flush file system on %s: %w", d.Path, err)
		}
	}
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", d.Path, err)
	}
	return nil
}

// activity returns how often the device was written to, and whether nothing is
// under way. See Documentation/block/stat.rst.
func (d *Device) activity() (writes string, quiet bool, err error) {
	stat, err := os.ReadFile(filepath.Join(sysBlock, filepath.Base(d.Path), "stat"))
	if err != nil {
		return "", false, fmt.Errorf("read activity of %s: %w", d.Path, err)
	}
	const writeCount, inFlight, discardCount = 4, 8, 11
	fields := strings.Fields(string(stat))
	if len(fields) <= discardCount {
		return "", false, fmt.Errorf("read activity of %s: %d numbers are too few", d.Path, len(fields))
	}
	return fields[writeCount] + "+" + fields[discardCount], fields[inFlight] == "0", nil
}

// openMounted opens a directory of the file system on the device, or returns
// nil if it is mounted nowhere. Nodes have mount namespaces of their own, so the
// mount is looked for in those of all processes, through which it is reached too.
func openMounted(dev uint64) (*os.File, error) {
	self, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("read mount namespace: %w", err)
	}
	if root := openMountedIn("/proc/self", dev); root != nil {
		return root, nil
	}
	seen := map[string]bool{self: true}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		process := filepath.Join("/proc", p.Name())
		namespace, err := os.Readlink(filepath.Join(process, "ns", "mnt"))
		if err != nil || seen[namespace] {
			continue // ended, or looked at
		}
		seen[namespace] = true
		if root := openMountedIn(process, dev); root != nil {
			return root, nil
		}
	}
	return nil, nil
}

// openMountedIn does so in the namespace of one process, which may end at any
// time: what cannot be read or opened is passed over.
func openMountedIn(process string, dev uint64) *os.File {
	table, err := os.Open(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil
	}
	defer func() { _ = table.Close() }()
	mounts, err := parseMountInfo(table)
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.Dev != dev {
			continue
		}
		f, err := os.OpenFile(filepath.Join(process, "root", m.Path), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err == nil && st.Dev == dev {
			return f
		}
		_ = f.Close() // another mount lies over it
	}
	return nil
}
