package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/cluster/child"
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
		Long: "End the cluster that is named, or every one that `up` started, and remove\n" +
			"everything that they made: processes, mounts, loop devices, cgroups, network\n" +
			"links and state. What crashed clusters left is removed, too. A cluster of a\n" +
			"running test or demo ends with that, and is only ended here if it is named.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: defaultName}.WithDefaults(nil)
			if err != nil {
				return err
			}
			names := []string{name}
			if name == "" {
				known, err := lifecycle.List(cfg.Root)
				if err != nil {
					return err
				}
				names = nil
				for _, k := range known {
					if k.Attached {
						fmt.Fprintf(cmd.OutOrStdout(), "cluster %q belongs to a running test or demo and ends with it\n", k.Name)
						continue
					}
					names = append(names, k.Name)
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
	cmd.Flags().StringVar(&name, "name", "", "name of the cluster (default: all that `up` started)")
	return cmd
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List clusters, and everything of theirs on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Config{Name: defaultName}.WithDefaults(nil)
			if err != nil {
				return err
			}
			known, err := lifecycle.List(cfg.Root)
			if err != nil {
				return err
			}
			items, err := residue.Find(residue.Scope{Root: cfg.Root})
			if err != nil {
				return err
			}
			if len(known) == 0 && len(items) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no cluster, and nothing left of one")
			}
			for _, k := range known {
				fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s\n", k.Name, describe(k))
			}
			for _, i := range items {
				fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", i)
			}
			return nil
		},
	}
}

// describe says in a few words how a cluster is.
func describe(k lifecycle.Known) string {
	reason, _, _ := strings.Cut(k.Status.Reason, "\n")
	switch {
	case k.Running && k.Status.Phase == "":
		return string(config.PhaseStarting)
	case k.Running && k.Attached:
		return string(k.Status.Phase) + ", belongs to a running test or demo"
	case k.Running:
		return string(k.Status.Phase) + ", kubeconfig " + k.Layout.Kubeconfig()
	case k.Status.Phase == config.PhaseFailed:
		return "Failed: " + reason + " (logs in " + k.Layout.Logs() + ")"
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
			k := child.Command(cmd.Context(), filepath.Join(cfg.BinDir, "kubectl"), args...)
			// kubectl finds its plugins in the PATH, ours among them.
			k.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+cfg.BinDir+":"+os.Getenv("PATH"))
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
