package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{Name: "demo"}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the volume populator tutorial on a cluster of its own",
		Long: "Start a cluster of one node, install Sluice's chart, and run the volume\n" +
			"populator tutorial (examples/hello) until its job prints \"Hello, world!\".\n" +
			"Then everything is removed, also if the demo fails or is interrupted.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			o.Prepare = func(ctx context.Context) error { return ensure(ctx, o.Out) }
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", o.Name, "name of the cluster")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the cluster running if the demo succeeds")
	return cmd
}
