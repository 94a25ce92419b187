// Command sluice-cluster runs Kubernetes clusters on this machine, for people
// who want to play with Sluice and for its tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints the error and returns the exit code: that of kubectl where it
// was the one to fail, having said why itself.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "sluice-cluster:", err)
	return 1
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "sluice-cluster",
		Short:         "Run Kubernetes clusters with simulated storage on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(prerequisitesCommand(), upCommand(), downCommand(), statusCommand(), kubectlCommand(), logsCommand(), envCommand(), installCommand(), demoCommand())
	return root
}
