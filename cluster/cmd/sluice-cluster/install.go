package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
)

func installCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade Sluice in a running cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: name}.WithDefaults(nil)
			if err != nil {
				return err
			}
			if _, err := kubeconfigOf(cfg); err != nil {
				return err
			}
			sluice, err := helm.BuildSluice(cmd.Context(), cfg, nil)
			if err != nil {
				return err
			}
			notes, err := sluice.Ensure(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), notes)
			return nil
		},
	}
	nameFlag(cmd, &name)
	return cmd
}
