package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/uninstall"
)

// uninstallCommand is the command that the chart's pre-delete hook runs.
func uninstallCommand(o *manager.Options, connect func() (*rest.Config, error)) *cobra.Command {
	deployment, timeout := "sluice-manager", time.Minute
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the managers and let go of all claims, before the chart is uninstalled",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := connect()
			if err != nil {
				return err
			}
			identity, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("find a name for the lease: %w", err)
			}
			return uninstall.Run(cmd.Context(), cfg, uninstall.Options{
				Namespace: o.Namespace, Deployment: deployment, LeaseDuration: o.LeaseDuration,
				Identity: identity + "_uninstall", Timeout: timeout, Log: ctrl.Log.WithName("uninstall"),
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&deployment, "deployment", deployment, "the managers' Deployment")
	f.DurationVar(&timeout, "timeout", timeout, "how long a claim waits for its workers and primes to vanish")
	return cmd
}
