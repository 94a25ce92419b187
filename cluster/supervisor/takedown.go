package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/cgroups"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/network"
	"github.com/sluice-dev/sluice/cluster/residue"
)

// takeDown removes what would outlive the namespaces: loop devices and cgroups,
// and for a moment the link to the machine. Every other process is killed
// first: containers and their shims outlive their kubelet on purpose. Mounts go
// with the namespaces.
func (s *supervisor) takeDown() error {
	return errors.Join(
		killOthers(10*time.Second),
		residue.DetachLoops(s.run.Config.ID()),
		s.leaveCgroups(),
		network.Detach(),
	)
}

// killOthers kills every process of the PID namespace but process 1 and the
// caller, and waits until they are gone.
func killOthers(limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		// -1 stands for every process but the caller and process 1.
		if err := unix.Kill(-1, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("kill processes: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill processes: still there after %s: %s", limit, others())
		}
	}
}

// others names the processes that are still there.
func others() string {
	var out []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		name, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err == nil {
			out = append(out, fmt.Sprintf("%d %s", pid, strings.TrimSpace(string(name))))
		}
	}
	return strings.Join(out, ", ")
}

func (s *supervisor) leaveCgroups() error {
	if err := cgroups.Leave(1, 0); err != nil {
		return err
	}
	dirs, err := cgroups.Find(s.run.Config.ID())
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := cgroups.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeState removes the state folder after the mounts in it.
func (s *supervisor) removeState() error {
	dir := filepath.Join(config.InsideRoot, filepath.Base(s.dir))
	for _, point := range mountsBelow(config.Inside, dir) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %q: %w", point, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}

// mountsBelow returns the mount points below the folders, the latest first.
func mountsBelow(dirs ...string) []string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	var out []string
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) > 4 && slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(fields[4], dir+"/") }) {
			out = append(out, fields[4])
		}
	}
	slices.Reverse(out)
	return out
}
