package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
	"github.com/sluice-dev/sluice/cluster/residue"
)

func downCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End clusters and remove all they made, also after a crash",
		Long: "End every cluster of this repository, or the one that is named, and remove\n" +
			"everything that they made: processes, mounts, loop devices, cgroups, network\n" +
			"links and state. It does not matter who started a cluster or how it ended.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: defaultName}.WithDefaults(nil)
			if err != nil {
				return err
			}
			names := []string{name}
			if name == "" {
				if names, err = lifecycle.List(cfg.Root); err != nil {
					return err
				}
			}
			for _, n := range names {
				if err := lifecycle.Down(cfg.Root, n); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "cluster %q is gone\n", n)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the cluster (default: all)")
	return cmd
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List clusters, and what dead ones left on the machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: defaultName}.WithDefaults(nil)
			if err != nil {
				return err
			}
			names, err := lifecycle.List(cfg.Root)
			if err != nil {
				return err
			}
			for _, n := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s\n", n, describe(config.Layout{Dir: filepath.Join(cfg.Root, n)}))
			}
			return nil
		},
	}
}

// describe says in a few words how a cluster is.
func describe(layout config.Layout) string {
	_, running, err := residue.FindInit(layout.Dir)
	if err != nil {
		return err.Error()
	}
	status, err := config.Load[config.Status](layout.Status())
	switch {
	case errors.Is(err, fs.ErrNotExist) && running:
		return string(config.PhaseStarting)
	case err != nil && running:
		return err.Error()
	case running:
		return string(status.Phase) + "  " + layout.Kubeconfig()
	case status.Phase == config.PhaseFailed:
		reason, _, _ := strings.Cut(status.Reason, "\n")
		return "Failed: " + reason + " (logs in " + layout.Logs() + ")"
	}
	return "Dead: `sluice-cluster down` removes what it left"
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--name=CLUSTER] [--] ARGS…",
		Short: "Run kubectl against a cluster",
		// kubectl's own flags are not ours.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultName
			if len(args) > 0 && strings.HasPrefix(args[0], "--name=") {
				name, args = strings.TrimPrefix(args[0], "--name="), args[1:]
			}
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			cfg, err := config.Config{Name: name}.WithDefaults(nil)
			if err != nil {
				return err
			}
			kubeconfig, err := kubeconfigOf(cfg)
			if err != nil {
				return err
			}
			k := exec.CommandContext(cmd.Context(), filepath.Join(cfg.BinDir, "kubectl"), args...)
			k.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
			k.Stdin, k.Stdout, k.Stderr = os.Stdin, os.Stdout, os.Stderr
			k.Cancel = func() error { return k.Process.Signal(os.Interrupt) }
			return k.Run()
		},
	}
}

// kubeconfigOf returns the kubeconfig of a cluster that is there.
func kubeconfigOf(cfg config.Config) (string, error) {
	path := cfg.Layout().Kubeconfig()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no cluster %q: start it with `sluice-cluster up --name=%s`", cfg.Name, cfg.Name)
	} else if err != nil {
		return "", fmt.Errorf("find kubeconfig: %w", err)
	}
	return path, nil
}

func logsCommand() *cobra.Command {
	var name string
	var lines int
	cmd := &cobra.Command{
		Use:   "logs [COMPONENT]",
		Short: "Print the end of a component's log, or name the components",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Config{Name: name}.WithDefaults(nil)
			if err != nil {
				return err
			}
			logs := component.Logs{Dir: cfg.Layout().Logs()}
			if len(args) == 1 {
				fmt.Fprintln(cmd.OutOrStdout(), logs.Tail(args[0], lines))
				return nil
			}
			files, err := filepath.Glob(filepath.Join(logs.Dir, "*.log"))
			if err != nil {
				return fmt.Errorf("list logs: %w", err)
			}
			for _, f := range files {
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSuffix(filepath.Base(f), ".log"))
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().IntVar(&lines, "lines", 100, "how many lines")
	return cmd
}

func envCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print shell commands that let kubectl talk to a cluster",
		Example: "  eval $(sluice-cluster env)\n" +
			"  kubectl get nodes",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: name}.WithDefaults(nil)
			if err != nil {
				return err
			}
			kubeconfig, err := kubeconfigOf(cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%q\nexport PATH=%q\n", kubeconfig, cfg.BinDir+":"+os.Getenv("PATH"))
			return nil
		},
	}
	nameFlag(cmd, &name)
	return cmd
}
