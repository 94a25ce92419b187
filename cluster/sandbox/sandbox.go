// Package sandbox runs a function of this program in PID, mount, network and
// host name namespaces of its own, much like a container: with a private
// overlay of the machine's root, so that nothing it writes lands there.
//
// The program executes itself twice: as init, process 1 of the new PID
// namespace, which prepares the mounts, reaps orphans and starts the second,
// the supervisor, which runs the function. When the supervisor ends, init
// ends, and the kernel ends every other process and drops every mount and
// network namespace. Killing that one process therefore cleans up.
package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names that the two processes carry as their first argument; the second is
// the state folder. Residue is found by them.
const (
	InitName       = "sluice-cluster:init"
	SupervisorName = "sluice-cluster:supervisor"
)

// Descriptors of init and supervisor.
const (
	controlFD = 3 // from the starter: one byte to go on, then its end
	eventsFD  = 4 // to the starter
)

// Process is a started sandbox as the starter sees it.
type Process struct {
	// Cmd is the init process.
	Cmd *exec.Cmd
	// Control lets init go on with its first byte; closing it tells the
	// supervisor that the starter is gone.
	Control io.WriteCloser
	// Events carries what the supervisor writes; it ends with the supervisor.
	Events io.ReadCloser
}

// Start starts init in new namespaces for the state folder dir. Init waits for
// the first byte on Control. Its output goes to the file log.
func Start(dir string, log *os.File) (*Process, error) {
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make control pipe: %w", err)
	}
	defer controlRead.Close() //nolint:errcheck // the child holds its own descriptor
	eventsRead, eventsWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make event pipe: %w", err), controlWrite.Close())
	}
	defer eventsWrite.Close() //nolint:errcheck // the child holds its own descriptor

	cmd := &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{InitName, dir},
		Env:        os.Environ(),
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: []*os.File{controlRead, eventsWrite},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
			Setsid:     true, // a terminal's Ctrl-C reaches only the starter, which stops in order
		},
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start in new namespaces: %w", err), controlWrite.Close(), eventsRead.Close())
	}
	return &Process{Cmd: cmd, Control: controlWrite, Events: eventsRead}, nil
}

// Supervisor is the function that runs inside. dir is the state folder on the
// host; control ends with the starter; events reaches the starter as long as
// it listens. The result is the exit code.
type Supervisor func(dir string, control io.Reader, events io.Writer) int

// Hook turns this process into init or supervisor if it was started as such,
// and otherwise returns at once. Every program that starts a sandbox calls it
// before anything else.
func Hook(prepare func(dir string) error, run Supervisor) {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[0] {
	case InitName:
		code, err := runInit(os.Args[1], prepare)
		if err != nil {
			fmt.Fprintln(os.Stderr, "init:", err)
		}
		os.Exit(code) //nolint:forbidigo // this process is the cluster's first one, not the program that imports us
	case SupervisorName:
		// A starter that no longer listens must not end the cluster.
		signal.Ignore(syscall.SIGPIPE)
		os.Exit(run(os.Args[1], os.NewFile(controlFD, "control"), os.NewFile(eventsFD, "events"))) //nolint:forbidigo // as above, the supervisor
	}
}

// runInit is process 1: prepare, start the supervisor, reap until it ends.
func runInit(dir string, prepare func(dir string) error) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	control, events := os.NewFile(controlFD, "control"), os.NewFile(eventsFD, "events")
	if _, err := control.Read(make([]byte, 1)); err != nil {
		return 1, fmt.Errorf("wait for the starter: %w", err)
	}
	if err := prepare(dir); err != nil {
		return 1, err
	}
	supervisor, err := os.StartProcess("/proc/self/exe", []string{SupervisorName, dir}, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, control, events},
	})
	if err != nil {
		return 1, fmt.Errorf("start supervisor: %w", err)
	}
	// Only the supervisor keeps the pipes, so that they end with it.
	if err := errors.Join(control.Close(), events.Close()); err != nil {
		return 1, fmt.Errorf("close pipes: %w", err)
	}
	go func() {
		for range signals {
			_ = supervisor.Signal(syscall.SIGTERM) // it is gone: then init ends just now
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("reap: %w", err)
		case pid == supervisor.Pid:
			if status.Exited() {
				return status.ExitStatus(), nil
			}
			return 1, fmt.Errorf("supervisor ended by signal: %s", status.Signal())
		}
	}
}
