// Package disk turns image files into disks: loop devices, file systems on
// them, mounts, and copies that keep holes. It knows nothing of CSI; its
// functions look at what the kernel says at each call, so that they may be
// repeated by another process after a crash.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	loopMajor   = 7
	loopControl = "/dev/loop-control"
	sysBlock    = "/sys/block"
	// deletedMark follows the path of a backing file that was unlinked.
	deletedMark = " (deleted)"
	// attachTries bounds the race for free devices with other programs.
	attachTries = 64
)

// Loop is a loop device.
type Loop struct {
	// Path is the device's node, such as /dev/loop3.
	Path string
	// Backing is the path of the file behind it, as the kernel tells it.
	Backing string
	minor   uint32
}

// Dev returns the device's number.
func (l Loop) Dev() uint64 { return unix.Mkdev(loopMajor, l.minor) }

// IsNode says whether the path leads to a node of the device, such as one that
// it is bound to. The kubelet's paths to a block volume are symbolic links.
func (l Loop) IsNode(path string) bool {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == l.Dev()
}

// Loops returns all loop devices in use.
func Loops() ([]Loop, error) {
	files, err := filepath.Glob(filepath.Join(sysBlock, "loop*", "loop", "backing_file"))
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var loops []Loop
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached since the list was made
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		minor, err := strconv.ParseUint(strings.TrimPrefix(name, "loop"), 10, 20)
		if err != nil {
			continue
		}
		loops = append(loops, Loop{
			Path:    "/dev/" + name,
			Backing: strings.TrimSuffix(strings.TrimSuffix(string(backing), "\n"), deletedMark),
			minor:   uint32(minor),
		})
	}
	slices.SortFunc(loops, func(a, b Loop) int { return int(a.minor) - int(b.minor) })
	return loops, nil
}

// A Device is a loop device held open, so that it stays the one it is.
type Device struct {
	Loop
	file *os.File
}

// Find returns the loop device of an image. ok is false if there is none.
func Find(image string) (found Loop, ok bool, err error) {
	d, ok, err := Open(image)
	if err != nil || !ok {
		return Loop{}, false, err
	}
	return d.Loop, true, d.Close()
}

// Open returns the image's loop device, held open. ok is false if there is none.
func Open(image string) (d *Device, ok bool, err error) {
	var want unix.Stat_t
	if err := unix.Stat(image, &want); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("stat image: %w", err)
	}
	loops, err := Loops()
	if err != nil {
		return nil, false, err
	}
	for _, l := range loops {
		if filepath.Base(l.Backing) != filepath.Base(image) {
			continue
		}
		f, err := openLoop(l, os.O_RDONLY)
		if err != nil {
			return nil, false, err
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		if err == nil && info.Device == want.Dev && info.Inode == want.Ino {
			return &Device{Loop: l, file: f}, true, nil
		}
		_ = f.Close() // another's, or freed since it was listed
	}
	return nil, false, nil
}

// Attach returns the image's loop device, making one if there is none. A device
// made for mounting, with autoclear, stays while it is open here or a file
// system on it is mounted: the last unmount frees it. Without autoclear it stays
// until it is detached.
func Attach(image string, autoclear bool) (*Device, error) {
	if d, ok, err := Open(image); err != nil || ok {
		return d, err
	}
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer func() { _ = backing.Close() }()
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop control: %w", err)
	}
	defer func() { _ = control.Close() }()

	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(image))
	if autoclear {
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	}
	for range attachTries {
		minor, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		l := Loop{Path: fmt.Sprintf("/dev/loop%d", minor), Backing: image, minor: uint32(minor)}
		f, err := openLoop(l, os.O_RDWR)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(f.Fd()), &config)
		if err == nil {
			return &Device{Loop: l, file: f}, nil
		}
		_ = f.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %q to %s: %w", filepath.Base(image), l.Path, err)
		}
	}
	return nil, fmt.Errorf("attach %q: no loop device stayed free", filepath.Base(image))
}

// Detach frees the image's loop device, if it has one. A device that is still
// open or mounted elsewhere goes with its last user.
func Detach(image string) error {
	d, ok, err := Open(image)
	if err != nil || !ok {
		return err
	}
	return errors.Join(d.clear(), d.Close())
}

// Refresh has the device take over its image's size.
func (d *Device) Refresh() error {
	if err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("resize %s: %w", d.Path, err)
	}
	return nil
}

// Close lets go of the device.
func (d *Device) Close() error {
	if err := d.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", d.Path, err)
	}
	return nil
}

func (d *Device) clear() error {
	err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", d.Path, err)
	}
	return nil
}

// openLoop opens the device, making its node where no devtmpfs does.
func openLoop(l Loop, flag int) (*os.File, error) {
	f, err := os.OpenFile(l.Path, flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Mknod(l.Path, syscall.S_IFBLK|0o660, int(l.Dev()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make %s: %w", l.Path, err)
		}
		f, err = os.OpenFile(l.Path, flag, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open loop device: %w", err)
	}
	return f, nil
}
