package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount mounts the file system of a device. Options are those of mount(8) that
// are not flags, except for "ro".
func Mount(l Loop, target string, kind FSKind, options []string) error {
	var flags uintptr
	var data []string
	if kind == XFS {
		// A clone carries its origin's UUID, which may be mounted here too.
		data = append(data, "nouuid")
	}
	for _, o := range options {
		if flag, known := mountFlags[o]; known {
			flags |= flag
		} else {
			data = append(data, o)
		}
	}
	if err := unix.Mount(l.Path, target, string(kind), flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("mount %s at %q: %w", l.Path, target, err)
	}
	return nil
}

// mountFlags are the options of mount(8) that the kernel takes as flags.
var mountFlags = map[string]uintptr{
	"rw": 0, "ro": unix.MS_RDONLY, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME,
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "defaults": 0,
}

// Bind makes the source, a directory or a device node, visible at the target.
func Bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %q to %q: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		err = fmt.Errorf("make %q read-only: %w", target, err)
		return errors.Join(err, Unmount(target))
	}
	return nil
}

// Unmount removes every mount at the path. There need not be one.
func Unmount(path string) error {
	for {
		if _, mounted, err := MountedAt(path); err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %q: %w", path, err)
		}
	}
}

// UnmountAndRemove removes every mount at the path, and the empty directory or
// file that was there to mount on. It may be repeated.
func UnmountAndRemove(path string) error {
	if err := Unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// MakeFile makes an empty file to bind a device node to.
func MakeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make folder of %q: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o660)
	if err != nil {
		return fmt.Errorf("make %q: %w", path, err)
	}
	return f.Close()
}
