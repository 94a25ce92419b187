package residue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/cluster/sandbox"
)

// Init is the first process of a cluster, as the host sees it. When it ends so
// does everything in the cluster's namespaces.
type Init struct {
	PID int
	// Dir is the cluster's state folder.
	Dir string
}

// Inits returns the running clusters whose state folder is below root, or
// everywhere if root is empty.
func Inits(root string) ([]Init, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []Init
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it ended meanwhile
		}
		args := strings.Split(string(cmdline), "\x00")
		if len(args) < 2 || args[0] != sandbox.InitName {
			continue
		}
		if root == "" || filepath.Dir(args[1]) == root {
			out = append(out, Init{PID: pid, Dir: args[1]})
		}
	}
	return out, nil
}

// FindInit returns the first process of the cluster with that state folder.
func FindInit(dir string) (Init, bool, error) {
	inits, err := Inits(filepath.Dir(dir))
	if err != nil {
		return Init{}, false, err
	}
	for _, i := range inits {
		if i.Dir == dir {
			return i, true, nil
		}
	}
	return Init{}, false, nil
}

// Terminate asks the cluster to stop in order and waits for it, and kills it
// when the time is over.
func (i Init) Terminate(grace time.Duration) error {
	if err := syscall.Kill(i.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop cluster %q: %w", filepath.Base(i.Dir), err)
	}
	if i.awaitEnd(grace) {
		return nil
	}
	return i.Kill()
}

// Kill ends the cluster at once and waits until its processes are gone.
func (i Init) Kill() error {
	if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill cluster %q: %w", filepath.Base(i.Dir), err)
	}
	if !i.awaitEnd(10 * time.Second) {
		return fmt.Errorf("kill cluster %q: process %d does not end", filepath.Base(i.Dir), i.PID)
	}
	return nil
}

// awaitEnd polls until the process no longer carries the cluster's name: it is
// gone, or a zombie, whose command line is empty.
func (i Init) awaitEnd(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if now, ok, err := FindInit(i.Dir); err == nil && (!ok || now.PID != i.PID) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

func processes(s Scope) ([]Item, error) {
	inits, err := Inits(s.Root)
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, i := range inits {
		if s.Cluster == "" || filepath.Base(i.Dir) == s.Cluster {
			items = append(items, Item{
				Kind:   KindProcess,
				Name:   fmt.Sprintf("%d (cluster %s)", i.PID, filepath.Base(i.Dir)),
				remove: i.Kill,
			})
		}
	}
	return items, nil
}
