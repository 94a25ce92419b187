// Package prerequisite checks that a machine can run a cluster, and installs
// the Debian packages that are missing. Each problem is one line that says how
// to mend it.
package prerequisite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Need is a file that a cluster needs and the Debian package that has it.
type Need struct {
	// Program is looked up in the usual folders; File is a path or a pattern.
	// One of them is set.
	Program, File string
	// Package is the Debian package.
	Package string
	// Build is true if it is needed to build the programs only.
	Build bool
}

// Needs returns what has to be on the machine besides Go.
func Needs() []Need {
	return []Need{
		{Program: "iptables", Package: "iptables"},                               // kube-proxy, Pod networks
		{Program: "mkfs.ext4", Package: "e2fsprogs"},                             // volumes
		{Program: "resize2fs", Package: "e2fsprogs"},                             // growing them
		{Program: "mkfs.xfs", Package: "xfsprogs"},                               // volumes of classes that ask for XFS
		{Program: "mount", Package: "mount"},                                     // the kubelet mounts through it
		{Program: "losetup", Package: "mount"},                                   // raw block volumes in the kubelet
		{Program: "blkid", Package: "util-linux"},                                // the kubelet looks at disks with it
		{Program: "nsenter", Package: "util-linux"},                              // port forwarding
		{Program: "gcc", Package: "gcc", Build: true},                            // runc
		{Program: "pkg-config", Package: "pkg-config", Build: true},              // finds libseccomp
		{File: "/usr/include/seccomp.h", Package: "libseccomp-dev", Build: true}, // runc
		{File: "/usr/include/stdlib.h", Package: "libc6-dev", Build: true},       // runc
	}
}

// Missing returns the packages of the needs that this machine lacks.
func Missing(needs []Need) []string {
	var packages []string
	for _, n := range needs {
		if !n.present() && !slices.Contains(packages, n.Package) {
			packages = append(packages, n.Package)
		}
	}
	return packages
}

// folders are searched for programs even if PATH lacks them, as it does for
// users who became root with su.
var folders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

func (n Need) present() bool {
	if n.File != "" {
		_, err := os.Stat(n.File)
		return err == nil
	}
	return slices.ContainsFunc(append(filepath.SplitList(os.Getenv("PATH")), folders...), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, n.Program))
		return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
	})
}

// Machine is what the checks look at; the fields are there to be replaced in
// tests. This returns the real one.
type Machine struct {
	OS      string
	UID     int
	Needs   []Need
	AptGet  string // path of apt-get; empty: not Debian-like
	Disk    string // folder on the file system that holds everything
	MinFree uint64 // bytes
}

// minFree is what the programs, the build cache and one cluster take.
const minFree = 12 << 30

// minFreeBuilt is enough once the programs are there.
const minFreeBuilt = 2 << 30

// This returns the machine that the program runs on. built says that the
// cluster's programs exist; disk is the folder that clusters live in.
func This(built bool, disk string) Machine {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		apt = ""
	}
	m := Machine{OS: runtime.GOOS, UID: os.Geteuid(), Needs: Needs(), AptGet: apt, Disk: disk, MinFree: minFree}
	if built {
		m.MinFree = minFreeBuilt
		m.Needs = slices.DeleteFunc(m.Needs, func(n Need) bool { return n.Build })
	}
	return m
}

// Problem is a reason why no cluster can run here, in one line with the remedy.
type Problem struct{ Text string }

func (p Problem) Error() string { return p.Text }

func problem(format string, args ...any) error { return Problem{fmt.Sprintf(format, args...)} }

// Ensure checks the machine and installs missing packages, telling progress
// which. The error is a Problem if the user can mend it.
func (m Machine) Ensure(ctx context.Context, progress func(string)) error {
	if m.OS != "linux" {
		return problem("clusters need Linux and this is %s: run it in a Linux virtual machine", m.OS)
	}
	if m.UID != 0 {
		return problem("clusters need root for namespaces, mounts and cgroups: run it with sudo")
	}
	if err := m.checkDisk(); err != nil {
		return err
	}
	missing := Missing(m.Needs)
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if m.AptGet == "" {
		return problem("missing on this machine, which has no apt-get: install what Debian calls %s", list)
	}
	progress("installing " + list)
	if err := m.install(ctx, missing); err != nil {
		return err
	}
	if still := Missing(m.Needs); len(still) > 0 {
		return problem("still missing after apt-get install: install what Debian calls %s", strings.Join(still, " "))
	}
	return nil
}

func (m Machine) checkDisk() error {
	dir := m.Disk
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the disk of %q: %w", dir, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < m.MinFree {
		return problem("%s has %.1f GB free and %.0f GB are needed: free some, or set SLUICE_BUILD_DIR to a folder on a larger disk",
			dir, float64(free)/(1<<30), float64(m.MinFree)/(1<<30))
	}
	return nil
}

// install runs apt-get, with a fresh list of packages if the machine's is too
// old for it.
func (m Machine) install(ctx context.Context, packages []string) error {
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	if _, err := m.apt(ctx, args...); err == nil {
		return nil
	}
	if out, err := m.apt(ctx, "update"); err != nil {
		return problem("apt-get update does not work (%s): check the network, or install %s yourself", lastLine(out), strings.Join(packages, " "))
	}
	if out, err := m.apt(ctx, args...); err != nil {
		return problem("apt-get install does not work (%s): install %s yourself", lastLine(out), strings.Join(packages, " "))
	}
	return nil
}

func (m Machine) apt(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, m.AptGet, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.CombinedOutput()
}

func lastLine(out []byte) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(lines[len(lines)-1])
}

// IsProblem says whether err is something that the user can mend.
func IsProblem(err error) bool { return errors.As(err, &Problem{}) }
