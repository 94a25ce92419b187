// Command sluice-bench measures Sluice on clusters of its own and prints one
// line a figure, see docs/performance.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/test/bench"
	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sluice-bench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "sluice-bench", Short: "Measure Sluice on clusters of this machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(populationCommand())
	return root
}

func populationCommand() *cobra.Command {
	o := bench.Options{Claims: []int{100, 1000}, Work: time.Second, Runs: 20, Settled: 10000}
	strict := false
	cmd := &cobra.Command{
		Use:   "population",
		Short: "How claims are filled: bursts, one by one on a real node, memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(logr.Discard())
			cfg, err := config.Config{Name: "bench"}.WithDefaults(nil)
			if err != nil {
				return err
			}
			o.Repository = cfg.Repository
			if o.Dir == "" {
				o.Dir = filepath.Join(filepath.Dir(cfg.BinDir), "bench")
			}
			o.Report = figure.NewReport(cmd.OutOrStdout())
			o.Report.Note("processors", runtime.NumCPU())
			o.Report.Note("kubernetes", config.Kubernetes)
			if err := bench.Population(cmd.Context(), o); err != nil {
				return err
			}
			missed := o.Report.Missed()
			fmt.Fprintf(cmd.ErrOrStderr(), "bench: %d figures missed their target; all of it: %s\n", missed, filepath.Join(o.Dir, "population.json"))
			if strict && missed > 0 {
				return fmt.Errorf("%d figures missed their target", missed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Claims, "claims", o.Claims, "sizes of the bursts; 100 and 1000 have targets")
	f.DurationVar(&o.Work, "work", o.Work, "how long the worker of each claim of a burst works")
	f.IntVar(&o.Runs, "runs", o.Runs, "claims filled one by one on a real node; 0: none")
	f.IntVar(&o.Settled, "settled", o.Settled, "settled claims to measure the manager's memory with; 0: none")
	f.BoolVar(&o.Profile, "profile", false, "keep profiles of the manager")
	f.StringVar(&o.Dir, "dir", "", "where figures, logs and profiles go (default .build/bench)")
	f.BoolVar(&strict, "strict", false, "fail if a target is missed")
	return cmd
}
