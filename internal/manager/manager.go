// Package manager builds the process that all controllers and webhooks run in:
// one client, one set of caches, leader election, health and metrics. What runs
// in it is a list of Setup functions that cmd/sluice-manager hands over.
package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/event"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/slots"
	"github.com/sluice-dev/sluice/internal/plugin"
)

// LeaseName is the name of the Lease that the leading replica holds.
const LeaseName = "sluice-manager"

// Options are what an operator can choose.
type Options struct {
	// Namespace is the manager's own: of its Lease, certificates, and of
	// workers with placement System.
	Namespace string
	// LeaderElection is on wherever two replicas may run.
	LeaderElection bool
	// LeaseDuration bounds how long the population of volumes stands still when
	// the leading replica dies.
	LeaseDuration time.Duration
	// QPS and Burst limit requests to the API server; QPS below 0 leaves that
	// to the API server's priority and fairness.
	QPS   float32
	Burst int
	// MetricsAddress and HealthAddress are where metrics and probes are served;
	// "0" serves none.
	MetricsAddress, HealthAddress string
	// ProfileAddress is where profiles of the process are served; "0" or empty
	// serves none. They show names of objects: keep them from strangers.
	ProfileAddress string
	// Webhooks is the server of the admission webhooks; nil runs none.
	Webhooks webhook.Server
	// ExcludedNamespaces are left alone, beside kube-system, the manager's own
	// namespace and those labelled sluice.dev/ignore: "true".
	ExcludedNamespaces []string
	// ProgressFromLogs has the progress of workers read from their logs, which
	// needs the right to read the logs of all Pods.
	ProgressFromLogs bool
	// Populators is a directory with the Populators that come with Sluice; empty
	// if there are none.
	Populators string
	// OfferImage is the image of Sluice's own worker, by which the Secrets of
	// workers are required to be offered; empty requires none.
	OfferImage string
	// Workers is how many claims are worked on at the same time.
	Workers int
	// Limits are how many claims may be filled at the same time.
	Limits slots.Limits
	// DialPlugin opens connections to plugins; nil is a net.Dialer.
	DialPlugin func(ctx context.Context, network, address string) (net.Conn, error)
	// GracePeriod is how long running reconciles may take to end.
	GracePeriod time.Duration
}

// Parts are what Setup functions build on.
type Parts struct {
	// Manager runs everything. Its client reads from caches; of Pods these hold
	// the workers only, see observe.CacheByObject.
	Manager ctrl.Manager
	// Kinds watches kinds that may be missing: sources, VolumePopulators,
	// ReferenceGrants.
	Kinds *kinds.Registry
	// Plugins are the connections to the plugins of Populators.
	Plugins *plugin.Connections
	// Events sends the events of all controllers.
	Events *event.Sender
	// Options are those that the manager was built with.
	Options Options
	// Now is the clock of everything that is in the manager.
	Now func() time.Time
}

// Setup adds one controller or webhook to the manager.
type Setup func(context.Context, Parts) error

// Scheme returns a scheme with every kind that the manager handles typed.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}

// New builds the manager and lets every Setup add to it.
func New(ctx context.Context, cfg *rest.Config, o Options, setups ...Setup) (ctrl.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	// Leases are renewed beside all other requests, never behind them.
	leaseConfig := rest.CopyConfig(cfg)
	leaseConfig.Timeout = o.LeaseDuration / 2

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: Scheme(),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         observe.CacheByObject(),
		},
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.HealthAddress,
		PprofBindAddress:              o.ProfileAddress,
		WebhookServer:                 o.Webhooks,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionConfig:          leaseConfig,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(o.LeaseDuration),
		RenewDeadline:                 new(o.LeaseDuration * 2 / 3),
		RetryPeriod:                   new(o.LeaseDuration / 6),
		GracefulShutdownTimeout:       new(o.GracePeriod),
		Controller:                    config.Controller{MaxConcurrentReconciles: o.Workers},
	})
	if err != nil {
		return nil, fmt.Errorf("build manager: %w", err)
	}
	registry, err := newRegistry(ctx, mgr)
	if err != nil {
		return nil, err
	}
	plugins, err := newPlugins(mgr, o)
	if err != nil {
		return nil, err
	}
	sender, err := newSender(mgr)
	if err != nil {
		return nil, err
	}
	parts := Parts{Manager: mgr, Kinds: registry, Plugins: plugins, Events: sender, Options: o, Now: time.Now}
	for _, setup := range setups {
		if err := setup(ctx, parts); err != nil {
			return nil, err
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesReady(mgr.GetCache())); err != nil {
		return nil, fmt.Errorf("add readiness probe: %w", err)
	}
	return &process{Manager: mgr, events: sender}, nil
}

// newPlugins builds the connections to plugins, and keeps the certificate that
// the leading replica, which alone calls plugins, shows them.
func newPlugins(mgr ctrl.Manager, o Options) (*plugin.Connections, error) {
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("build client for certificates of plugins: %w", err)
	}
	keeper := plugin.NewKeeper(clients, o.Namespace, time.Now, mgr.GetLogger().WithName("plugin"))
	if err := mgr.Add(keeper); err != nil {
		return nil, fmt.Errorf("add keeper of the certificate for plugins: %w", err)
	}
	return plugin.NewConnections(keeper, o.DialPlugin), nil
}

// newRegistry builds the registry of kinds that may be missing, told of new
// definitions by a watch on these.
func newRegistry(ctx context.Context, mgr ctrl.Manager) (*kinds.Registry, error) {
	dyn, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("build dynamic client: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("build metadata client: %w", err)
	}
	registry := kinds.New(dyn, meta, mgr.GetRESTMapper(), mgr.GetLogger().WithName("kinds"))
	if err := mgr.Add(registry); err != nil {
		return nil, fmt.Errorf("add watches of kinds: %w", err)
	}
	definitions := &metav1.PartialObjectMetadata{}
	definitions.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	informer, err := mgr.GetCache().GetInformer(ctx, definitions, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch definitions of kinds: %w", err)
	}
	changed := func(item any) {
		if o, ok := item.(client.Object); ok {
			_, group, _ := strings.Cut(o.GetName(), ".")
			registry.KindsChanged(group)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, o any) { changed(o) },
	}); err != nil {
		return nil, fmt.Errorf("watch definitions of kinds: %w", err)
	}
	return registry, nil
}

// cachesReady is the readiness probe: webhooks answer from caches too.
func cachesReady(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("caches are being filled")
		}
		return nil
	}
}
