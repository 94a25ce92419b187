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

// Release unmounts and frees everything that stands on image files under the
// directory, whoever made it: for the end of a cluster, also one that crashed.
// It sees the mounts of its own namespace only; those of others hold their
// device until their namespace ends.
func Release(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release disks: %w", err)
	}
	loops, err := Loops()
	if err != nil {
		return err
	}
	mounts, err := MountPoints()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range loops {
		if l.under(dir) {
			errs = append(errs, unmountAll(mounts, l), clearIf(l, func(*Device) bool { return l.still(dir) }))
		}
	}
	return errors.Join(errs...)
}

// unmountAll unmounts the device's file system and its node, the last mount
// first, and frees the loop devices that stand on the device itself: the kubelet
// holds raw block volumes open that way.
func unmountAll(mounts []MountPoint, l Loop) error {
	var errs []error
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		if m.Dev != l.Dev() && !l.IsNode(m.Path) {
			continue
		}
		err := unix.Unmount(m.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %q: %w", m.Path, err))
		}
	}
	loops, err := Loops()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, above := range loops {
		errs = append(errs, clearIf(above, func(d *Device) bool {
			info, err := unix.IoctlLoopGetStatus64(int(d.file.Fd()))
			return err == nil && info.Rdevice == l.Dev()
		}))
	}
	return errors.Join(errs...)
}

// clearIf frees the device if the condition holds while it is held open.
func clearIf(l Loop, condition func(*Device) bool) error {
	f, err := openLoop(l, os.O_RDONLY)
	if err != nil {
		return err
	}
	d := &Device{Loop: l, file: f}
	if condition(d) {
		err = d.clear()
	}
	return errors.Join(err, d.Close())
}

// under says whether the device's image is below the directory.
func (l Loop) under(dir string) bool {
	return strings.HasPrefix(l.Backing, dir+string(filepath.Separator))
}

// still says whether the device has an image below the directory by now.
func (l Loop) still(dir string) bool {
	loops, err := Loops()
	if err != nil {
		return false
	}
	for _, now := range loops {
		if now.minor == l.minor {
			return now.under(dir)
		}
	}
	return false
}
