// Package child runs programs that do not outlive the program that runs them,
// however that ends.
package child

import (
	"context"
	"os/exec"
	"syscall"
)

// Command is exec.CommandContext for a program that is killed by the kernel
// when this one is gone, also if this one is killed (prctl(2),
// PR_SET_PDEATHSIG). The kernel goes by the thread that starts the child: do
// not start it from a goroutine that locks its thread and then ends. Meant for
// what may be killed at any time; not for a package manager.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // running what it is told to run is its purpose
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
