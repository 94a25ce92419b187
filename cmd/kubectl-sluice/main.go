// Command kubectl-sluice is kubectl's plugin for Sluice. In the PATH it makes
//
//	kubectl sluice explain pvc/NAME    what happens to a claim, and what to do
//	kubectl sluice release pvc/NAME    let a claim go by hand
//
// Exit codes: 0 done or all is well, 1 error, 2 called wrongly, 3 someone must
// act. See docs/cli.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/cli"
	"github.com/sluice-dev/sluice/internal/cli/explain"
	"github.com/sluice-dev/sluice/internal/cli/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], cli.IOStreams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, streams cli.IOStreams) int {
	cluster := &cli.Cluster{}
	root := &cobra.Command{
		Use:   "kubectl sluice",
		Short: "Explain claims that Sluice fills, and let them go",
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl sluice",
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("%q is no verb of kubectl sluice", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.UsageError{Err: err} })
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetArgs(args)
	cluster.AddFlags(root)
	root.AddCommand(
		explain.New(streams, cluster.Connect, time.Now),
		release.New(streams, cluster.Connect, time.Now),
	)
	err := root.ExecuteContext(ctx)
	code := cli.ExitCode(err)
	if err != nil && !errors.Is(err, cli.ErrAct) {
		fmt.Fprintf(streams.Err, "error: %v\n", err)
	}
	if code == cli.ExitUsage {
		fmt.Fprintln(streams.Err, "See kubectl sluice --help")
	}
	return code
}
