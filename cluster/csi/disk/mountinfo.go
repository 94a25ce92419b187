package disk

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountPoint is one line of the kernel's mount table.
type MountPoint struct {
	Path   string
	Dev    uint64
	Root   string
	FSType string
	// ReadOnly is the mount's own flag, not the file system's.
	ReadOnly bool
}

// MountPoints returns the mounts of this process's namespace, later ones after
// those they cover.
func MountPoints() ([]MountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseMountInfo(f)
}

// MountedAt returns the topmost mount at the path.
func MountedAt(at string) (found MountPoint, ok bool, err error) {
	mounts, err := MountPoints()
	for _, m := range mounts {
		if m.Path == at {
			found, ok = m, true
		}
	}
	return found, ok, err
}

// MountsOf returns the mounts of the file system on a device.
func MountsOf(dev uint64) ([]MountPoint, error) {
	mounts, err := MountPoints()
	var found []MountPoint
	for _, m := range mounts {
		if m.Dev == dev {
			found = append(found, m)
		}
	}
	return found, err
}

// BindsOf returns the mounts that show the device's own node.
func BindsOf(l Loop) ([]MountPoint, error) {
	mounts, err := MountPoints()
	var found []MountPoint
	for _, m := range mounts {
		if path.Base(m.Root) == path.Base(l.Path) && l.IsNode(m.Path) {
			found = append(found, m)
		}
	}
	return found, err
}

// parseMountInfo reads the format that proc_pid_mountinfo(5) describes.
func parseMountInfo(r io.Reader) ([]MountPoint, error) {
	var mounts []MountPoint
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		separator := -1
		for i := 6; i < len(fields); i++ {
			if fields[i] == "-" {
				separator = i
				break
			}
		}
		if separator < 0 || separator+1 >= len(fields) {
			return nil, fmt.Errorf("read mount table: line %q is malformed", lines.Text())
		}
		major, minor, _ := strings.Cut(fields[2], ":")
		maj, errMajor := strconv.ParseUint(major, 10, 32)
		mnr, errMinor := strconv.ParseUint(minor, 10, 32)
		if errMajor != nil || errMinor != nil {
			return nil, fmt.Errorf("read mount table: device %q is malformed", fields[2])
		}
		m := MountPoint{
			Path:   unescape(fields[4]),
			Dev:    unix.Mkdev(uint32(maj), uint32(mnr)),
			Root:   unescape(fields[3]),
			FSType: fields[separator+1],
		}
		for option := range strings.SplitSeq(fields[5], ",") {
			m.ReadOnly = m.ReadOnly || option == "ro"
		}
		mounts = append(mounts, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return mounts, nil
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
