package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind is a folder of the host that is seen inside.
type Bind struct {
	From, To string
	ReadOnly bool
}

// PrivateRoot gives the calling process, alone in a new mount namespace, a
// root of its own: the machine's files under a layer in memory that takes
// every write, a new /proc for the PID namespace, empty /run and /tmp, the
// machine's /dev and /sys, and the binds. scratch is an existing folder that
// serves as mount point. Mounts made later are shared within the namespace and
// never reach the host.
func PrivateRoot(scratch string, binds []Bind) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", scratch, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	root := filepath.Join(scratch, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	separate, err := separateFolders("/")
	if err != nil {
		return err
	}
	for _, dir := range append([]string{"/"}, separate...) {
		if err := overlay(dir, filepath.Join(root, dir), filepath.Join(scratch, "layer"+strings.ReplaceAll(dir, "/", "-"))); err != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return mount("/dev", filepath.Join(root, "dev"), "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return mount("/sys", filepath.Join(root, "sys"), "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return mount("proc", filepath.Join(root, "proc"), "proc", 0, "") },
		func() error { return mount("tmpfs", filepath.Join(root, "run"), "tmpfs", 0, "mode=755") },
		func() error { return mount("tmpfs", filepath.Join(root, "tmp"), "tmpfs", 0, "mode=1777") },
	}
	for _, b := range binds {
		steps = append(steps, func() error { return BindMount(b.From, filepath.Join(root, b.To), b.ReadOnly) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	// The old root ends up on top of the new one and is taken off at once.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// separateFolders returns the folders right below root, of those that hold
// programs and what they keep, that are file systems of their own: an overlay
// of root alone would show them empty.
func separateFolders(root string) ([]string, error) {
	var top unix.Stat_t
	if err := unix.Stat(root, &top); err != nil {
		return nil, fmt.Errorf("look at %q: %w", root, err)
	}
	var out []string
	for _, name := range []string{"etc", "home", "opt", "root", "srv", "usr", "var"} {
		dir := filepath.Join(root, name)
		var stat unix.Stat_t
		err := unix.Lstat(dir, &stat)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at %q: %w", dir, err)
		}
		if stat.Dev != top.Dev && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			out = append(out, dir)
		}
	}
	return out, nil
}

// overlay shows the folder lower at target, with every write taken by layer.
func overlay(lower, target, layer string) error {
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return mount("overlay", target, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work)
}

// BindMount makes the folder from visible at to, which is made if missing.
func BindMount(from, to string, readOnly bool) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	return mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// BindTree makes the folder from, with everything mounted below it, visible at
// to, which is made if missing.
func BindTree(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// BindFile makes the file from visible at to, which exists.
func BindFile(from, to string) error { return mount(from, to, "", unix.MS_BIND, "") }

// Tmpfs mounts an empty file system in memory at dir, which is made if missing.
func Tmpfs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return mount("tmpfs", dir, "tmpfs", 0, "mode=755")
}

func mount(from, to, kind string, flags uintptr, data string) error {
	if err := unix.Mount(from, to, kind, flags, data); err != nil {
		return fmt.Errorf("mount %q on %q: %w", from, to, err)
	}
	return nil
}
