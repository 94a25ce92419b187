// Command sluice-manager runs Sluice's controllers and admission webhooks.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/internal/controller/datasource"
	"github.com/sluice-dev/sluice/internal/controller/population"
	"github.com/sluice-dev/sluice/internal/controller/populator"
	"github.com/sluice-dev/sluice/internal/controller/shipped"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/plan/slots"
	"github.com/sluice-dev/sluice/internal/webhook/certificate"
	claimwebhook "github.com/sluice-dev/sluice/internal/webhook/claim"
	populatorwebhook "github.com/sluice-dev/sluice/internal/webhook/populator"
)

// setups is everything that runs in the manager, beside what keeps the
// certificate of its webhooks.
var setups = []manager.Setup{
	population.Setup,
	populator.Setup,
	shipped.Setup,
	datasource.Setup,
	populatorwebhook.Setup,
	claimwebhook.Setup,
}

// garbage is how much the heap may grow, in per cent, before it is collected.
// What the manager holds are caches, which live long: Go's default of 100 would
// keep as much garbage as there are claims, for a saving in processor time that
// nobody would see.
const garbage = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-manager:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := manager.Options{
		Namespace:      os.Getenv("POD_NAMESPACE"),
		LeaderElection: true,
		LeaseDuration:  12 * time.Second,
		QPS:            -1,
		Burst:          100,
		MetricsAddress: ":8080",
		HealthAddress:  ":8081",
		Workers:        16,
		Limits:         slots.Limits{Moving: 20},
		GracePeriod:    20 * time.Second,
	}
	if o.Namespace == "" {
		o.Namespace = "sluice-system"
	}
	format, verbosity, webhookPort := "json", 0, 9443
	// connect sets the logger up and finds the cluster.
	connect := func() (*rest.Config, error) {
		logger, err := newLogger(format, verbosity)
		if err != nil {
			return nil, err
		}
		ctrl.SetLogger(logger)
		klog.SetLogger(logger)
		cfg, err := ctrl.GetConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster: %w", err)
		}
		return cfg, nil
	}
	cmd := &cobra.Command{
		Use:           "sluice-manager",
		Short:         "Fill volumes from any data source",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := connect()
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, o, webhookPort)
		},
	}
	all := cmd.PersistentFlags()
	all.AddGoFlag(flag.Lookup("kubeconfig"))
	all.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the manager itself")
	all.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration, "how long a dead leader's lease holds up the others")
	all.StringVar(&format, "log-format", format, "json or text")
	all.IntVarP(&verbosity, "verbosity", "v", verbosity, "0: changes of state, 1: every step")
	f := cmd.Flags()
	f.BoolVar(&o.LeaderElection, "leader-elect", o.LeaderElection, "let one replica lead; needed with more than one")
	f.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests per second to the API server; negative: no limit but the server's own priority and fairness")
	f.IntVar(&o.Burst, "kube-api-burst", o.Burst, "requests at once beyond --kube-api-qps")
	f.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, `where to serve metrics; "0" serves none`)
	f.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, `where to serve /healthz and /readyz; "0" serves none`)
	f.BoolVar(&o.ProgressFromLogs, "progress-from-logs", false, "read the progress of workers from their logs; needs the right to get pods/log")
	f.StringVar(&o.ProfileAddress, "pprof-address", "0", `where to serve profiles of the manager itself; "0" serves none`)
	f.StringVar(&o.OfferImage, "require-offer", "", "`image` of Sluice's own worker, to look with it whether each Secret that a worker reads is offered to its source; empty: none has to be")
	f.IntVar(&o.Workers, "workers", o.Workers, "claims worked on at the same time")
	f.IntVar(&o.Limits.Total, "max-populations", 0, "claims filled at the same time; 0: no limit")
	f.IntVar(&o.Limits.Namespace, "max-populations-per-namespace", 0, "claims of one namespace filled at the same time; 0: no limit")
	f.IntVar(&o.Limits.Class, "max-populations-per-storage-class", 0, "claims of one storage class filled at the same time; 0: no limit")
	f.IntVar(&o.Limits.Node, "max-populations-per-node", 0, "claims filled on one node at the same time, as far as the node is chosen beforehand; 0: no limit")
	f.IntVar(&o.Limits.Source, "max-populations-per-source", 0, "claims filled from one source object at the same time; 0: no limit")
	f.IntVar(&o.Limits.Moving, "moving-populations", o.Limits.Moving, "claims begun or handed over at the same time, so that what was begun ends soon; 0: no limit")
	f.DurationVar(&o.GracePeriod, "grace-period", o.GracePeriod, "how long running work may take to end when the manager is stopped")
	f.IntVar(&webhookPort, "webhook-port", webhookPort, "where to serve admission webhooks; 0 serves none")
	f.StringArrayVar(&o.ExcludedNamespaces, "exclude-namespace", nil, "namespace to keep out of, beside kube-system and the manager's own; may be repeated")
	f.StringVar(&o.Populators, "populators", "", "directory with Populators to apply, one in each file *.yaml; empty applies none")
	cmd.AddCommand(uninstallCommand(&o, connect))
	return cmd
}

// run runs the manager until ctx ends.
func run(ctx context.Context, cfg *rest.Config, o manager.Options, webhookPort int) error {
	all := setups
	if webhookPort > 0 {
		clients, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return fmt.Errorf("build client for certificates: %w", err)
		}
		keeper := certificate.New(clients, certificate.Options{Namespace: o.Namespace, Log: ctrl.Log.WithName("certificate")})
		o.Webhooks = keeper.Server("", webhookPort)
		all = append(slices.Clone(all), keeper.Setup)
	}
	mgr, err := manager.New(ctx, cfg, o, all...)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newLogger returns a logger to standard error.
func newLogger(format string, verbosity int) (logr.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	switch format {
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, options)), nil
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, options)), nil
	}
	return logr.Logger{}, fmt.Errorf("log format %q: want json or text", format)
}
