package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// FSKind is a kind of file system.
type FSKind string

// The kinds of file system that a disk may have.
const (
	Unformatted FSKind = ""
	Ext4        FSKind = "ext4"
	XFS         FSKind = "xfs"
)

// ErrForeignData is returned by Probe for a disk that is neither empty nor has
// a file system known here, and must therefore not be formatted.
var ErrForeignData = errors.New("the disk holds data that is no known file system")

// ParseFSKind returns the kind of that name; ext4 is the default.
func ParseFSKind(name string) (FSKind, error) {
	switch k := FSKind(name); k {
	case Ext4, XFS:
		return k, nil
	case Unformatted:
		return Ext4, nil
	}
	return Unformatted, fmt.Errorf("file system %q is not supported: want %q or %q", name, Ext4, XFS)
}

// probeSize is how much of a disk is looked at before it counts as empty.
const probeSize = 1 << 20

// Probe returns the kind of file system that an image holds.
func Probe(image string) (FSKind, error) {
	f, err := os.Open(image)
	if err != nil {
		return Unformatted, fmt.Errorf("probe image: %w", err)
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, probeSize))
	if err != nil {
		return Unformatted, fmt.Errorf("probe image: %w", err)
	}
	return probe(head)
}

func probe(head []byte) (FSKind, error) {
	const extMagicAt = 1024 + 56
	switch {
	case bytes.HasPrefix(head, []byte("XFSB")):
		return XFS, nil
	case len(head) > extMagicAt+1 && head[extMagicAt] == 0x53 && head[extMagicAt+1] == 0xEF:
		return Ext4, nil
	case len(bytes.Trim(head, "\x00")) == 0:
		return Unformatted, nil
	}
	return Unformatted, ErrForeignData
}

// Format makes a file system on the device, whatever is there.
func Format(ctx context.Context, l Loop, kind FSKind) error {
	switch kind {
	case Ext4:
		return run(ctx, "mkfs.ext4", "e2fsprogs", "-F", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", l.Path)
	case XFS:
		return run(ctx, "mkfs.xfs", "xfsprogs", "-f", "-q", l.Path)
	case Unformatted:
	}
	return fmt.Errorf("format %s: file system %q is not supported", l.Path, kind)
}

// ErrOnlyUnmounted is returned by Grow where this process may not grow the file
// system while it is mounted: ext4 asks for CAP_SYS_RESOURCE, which containers
// and some virtual machines withhold. It can be grown before the next mount.
var ErrOnlyUnmounted = errors.New("growing a mounted ext4 needs CAP_SYS_RESOURCE, which this process lacks; it grows when the volume is staged anew")

// Grow makes a mounted file system as large as its device. It may be repeated.
func Grow(ctx context.Context, l Loop, mountPoint string, kind FSKind) error {
	switch kind {
	case Ext4:
		if !capable(unix.CAP_SYS_RESOURCE) {
			return ErrOnlyUnmounted
		}
		return run(ctx, "resize2fs", "e2fsprogs", l.Path)
	case XFS:
		return run(ctx, "xfs_growfs", "xfsprogs", mountPoint)
	case Unformatted:
	}
	return fmt.Errorf("grow file system at %q: kind %q is not supported", mountPoint, kind)
}

// GrowUnmounted makes a file system as large as its device where that kind can
// grow without being mounted. grown is false for a kind that has to be mounted.
func GrowUnmounted(ctx context.Context, l Loop, kind FSKind) (grown bool, err error) {
	if kind != Ext4 {
		return false, nil
	}
	// resize2fs insists on a check, and an image copied while it was in use has
	// a journal to replay. Status 1 says that something was put right.
	var exit *exec.ExitError
	err = run(ctx, "e2fsck", "e2fsprogs", "-f", "-p", l.Path)
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return false, err
	}
	return true, run(ctx, "resize2fs", "e2fsprogs", l.Path)
}

// capable says whether this process has the capability.
func capable(capability uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// run runs a program of a Debian package.
func run(ctx context.Context, program, pkg string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("run %s: it is missing, install the package %s", program, pkg)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
