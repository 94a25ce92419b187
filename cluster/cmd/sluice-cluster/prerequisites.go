package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/prerequisite"
	"github.com/sluice-dev/sluice/cluster/toolchain"
)

func prerequisitesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prerequisites",
		Short: "Install what clusters need from the machine and build Kubernetes",
		Long: "Install the Debian packages that clusters need, and build etcd, Kubernetes,\n" +
			"containerd and the rest from the modules in cluster/go.mod. What is there\n" +
			"already is left alone.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ensure(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// ensure makes the machine ready to run clusters.
func ensure(ctx context.Context, out io.Writer) error {
	cfg, err := config.Config{Name: defaultName}.WithDefaults(nil)
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(cfg.BinDir, "runc"))
	progress := func(what string) { fmt.Fprintln(out, what) }
	if err := prerequisite.This(err == nil, cfg.Root).Ensure(ctx, progress); err != nil {
		return err
	}
	build := toolchain.Build{
		Module:   filepath.Join(cfg.Repository, "cluster"),
		Bin:      cfg.BinDir,
		Progress: func(what string) { progress("building " + what) },
	}
	if err := build.Run(ctx, toolchain.Programs()); err != nil {
		return err
	}
	return build.Copy(ctx, toolchain.Manifests())
}
