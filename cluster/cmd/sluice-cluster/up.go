package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/images"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
)

// defaultName is the cluster that commands are about if no other is named.
const defaultName = "sluice"

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", defaultName, "name of the cluster")
}

func upCommand() *cobra.Command {
	cfg := config.Config{CSI: true}
	var nodes int
	gates := map[string]string{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster that stays until `sluice-cluster down`",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Nodes = config.DefaultNodes(nodes)
			var err error
			if cfg.FeatureGates, err = parseGates(gates); err != nil {
				return err
			}
			return up(cmd.Context(), cmd.OutOrStdout(), cfg)
		},
	}
	nameFlag(cmd, &cfg.Name)
	cmd.Flags().IntVar(&nodes, "nodes", 1, "number of real nodes; 0: control plane only")
	cmd.Flags().BoolVar(&cfg.CSI, "csi", true, "run the simulated storage")
	cmd.Flags().BoolVar(&cfg.AuditLog, "audit-log", false, "write one line per API request")
	cmd.Flags().StringToStringVar(&gates, "feature-gates", nil, "Kubernetes feature gates, Name=true|false")
	return cmd
}

func parseGates(in map[string]string) (map[string]bool, error) {
	out := map[string]bool{}
	for name, value := range in {
		switch value {
		case "true", "false":
			out[name] = value == "true"
		default:
			return nil, fmt.Errorf("--feature-gates: %s=%s: want true or false", name, value)
		}
	}
	return out, nil
}

func up(ctx context.Context, out io.Writer, cfg config.Config) error {
	if err := ensure(ctx, out); err != nil {
		return err
	}
	if len(cfg.Nodes) > 0 {
		if err := buildImages(ctx, out, cfg); err != nil {
			return err
		}
	}
	run, err := lifecycle.Start(ctx, cfg, lifecycle.Options{Detached: true, OnStatus: func(s config.Status) {
		if s.Phase == config.PhaseStarting {
			fmt.Fprintf(out, "%6.1fs  %s\n", s.Since.Seconds(), s.Unit)
		}
	}})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "cluster %q is ready; use it with\n  export KUBECONFIG=%s\nand end it with\n  sluice-cluster down --name=%s\n",
		run.Config().Name, run.Config().Layout().Kubeconfig(), run.Config().Name)
	return nil
}

// buildImages makes the images that Pods of the cluster may use.
func buildImages(ctx context.Context, out io.Writer, cfg config.Config) error {
	cfg, err := cfg.WithDefaults(nil)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = images.Build(ctx, images.Options{Root: cfg.Repository, Dir: cfg.ImagesDir})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "images are up to date (%.1fs)\n", time.Since(begin).Seconds())
	return nil
}
