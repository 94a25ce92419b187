package population

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/apply"
	"github.com/sluice-dev/sluice/internal/event"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/metrics"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plugin"
	"github.com/sluice-dev/sluice/internal/progress"
	"github.com/sluice-dev/sluice/internal/registration"
)

const (
	// deadline bounds one reconcile, so that a hanging request is noticed.
	deadline = time.Minute

	// firstRetry and lastRetry bound the back-off after errors. Waiting for
	// something is no error: whatever is waited for is watched.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Setup adds the population engine to a manager.
func Setup(ctx context.Context, p manager.Parts) error {
	mgr := p.Manager
	if err := observe.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	pending, err := pendingCache(ctx, mgr)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("build client for events: %w", err)
	}
	problems := observe.NewProblems(clients.CoreV1())
	if err := mgr.Add(problems); err != nil {
		return fmt.Errorf("add watch of events: %w", err)
	}
	memory := observe.NewMemory(p.Now, observe.Progress(ctx, mgr.GetCache()))
	programs := &observe.Programs{OfferImage: p.Options.OfferImage}
	p.Kinds.Watch(registration.Kind, kinds.Full)
	p.Kinds.Watch(observe.ReferenceGrantKind, kinds.Full)
	config := observe.Config{
		Cache: mgr.GetCache(), Pending: pending, Live: mgr.GetAPIReader(),
		Kinds: p.Kinds, Problems: problems, Memory: memory, Templates: programs, Now: p.Now, System: p.Options.Namespace,
	}
	var sampler *progress.Sampler
	if p.Options.ProgressFromLogs {
		sampler = progress.New(progress.Config{
			Workers: mgr.GetCache(), Logs: progress.FromAPI(clients.CoreV1()), Clock: clock.RealClock{},
			Log: mgr.GetLogger().WithName("progress"), Count: metrics.LogRead,
		})
		if err := mgr.Add(sampler); err != nil {
			return fmt.Errorf("add reading of progress: %w", err)
		}
		config.Readings = sampler
	}
	if err := metrics.Register(metrics.NewCollector(mgr.GetCache(), mgr.Elected(), p.Now)); err != nil {
		return err
	}
	var caller *plugin.Caller
	config.Answers = func(claim types.UID) []populate.Answer { return caller.Answers(claim) }
	observer := observe.New(config)
	caller = plugin.NewCaller(p.Plugins, observe.PluginReads{Observer: observer}, p.Now, mgr.GetLogger().WithName("plugin"))
	if err := mgr.Add(caller); err != nil {
		return fmt.Errorf("add calls of plugins: %w", err)
	}
	turns := newLedger(p.Options.Limits, mgr.GetCache(), mgr.GetAPIReader(), p.Now)
	c := New(observer, apply.New(mgr.GetAPIReader(), mgr.GetClient(), caller), event.New(p.Events.Recorder(event.Controller)), p.Namespaces(), turns, memory, caller, p.Now)
	w := &waker{cache: mgr.GetCache(), kinds: p.Kinds, memory: memory, programs: programs, plugins: p.Plugins, log: mgr.GetLogger().WithName("population")}

	enqueue := handler.TypedEnqueueRequestsFromMapFunc[client.Object, observe.Key]
	err = builder.TypedControllerManagedBy[observe.Key](mgr).
		Named("population").
		Watches(&corev1.PersistentVolumeClaim{}, enqueue(w.claim), builder.WithPredicates(predicate.Funcs{UpdateFunc: claimChanged})).
		Watches(&v1alpha1.Population{}, enqueue(w.population)).
		Watches(&corev1.Pod{}, enqueue(w.temporary)).
		Watches(&corev1.PersistentVolume{}, enqueue(w.volume)).
		Watches(&v1alpha1.Populator{}, w.populators()).
		Watches(&storagev1.StorageClass{}, enqueue(w.class)).
		Watches(&storagev1.CSIDriver{}, enqueue(w.driver)).
		Watches(&corev1.ResourceQuota{}, enqueue(w.roomier), builder.WithPredicates(predicate.Funcs{
			CreateFunc: never[crevent.CreateEvent], UpdateFunc: quotaGrew,
		})).
		Watches(&corev1.Namespace{}, enqueue(w.namespace), builder.OnlyMetadata, builder.WithPredicates(predicate.Funcs{
			DeleteFunc: never[crevent.DeleteEvent], UpdateFunc: labelsChanged,
		})).
		WatchesRawSource(source.TypedFunc[observe.Key](func(ctx context.Context, q workqueue.TypedRateLimitingInterface[observe.Key]) error {
			p.Kinds.Listen(func(change kinds.Change) { addAll(q, w.kindChanged(ctx, change)) })
			turns.Listen(func(keys []observe.Key) { addAll(q, keys) })
			caller.Listen(func(call populate.CallPlugin) {
				q.Add(observe.Key{Namespace: call.Namespace, Name: call.Name, UID: call.ClaimUID})
			})
			problems.Listen(func(claim types.UID) { addAll(q, w.byUID(ctx, claim)) })
			if sampler != nil {
				sampler.Listen(func(claim types.UID) { addAll(q, w.byUID(ctx, claim)) })
			}
			return nil
		})).
		WithOptions(controller.TypedOptions[observe.Key]{
			MaxConcurrentReconciles: p.Options.Workers,
			ReconciliationTimeout:   deadline,
			EnableWarmup:            new(true),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[observe.Key](firstRetry, lastRetry),
		}).
		WithLogConstructor(LogConstructor(mgr.GetLogger().WithName("population"))).
		Complete(c)
	if err != nil {
		return fmt.Errorf("add controller %q: %w", "population", err)
	}
	return nil
}

// pendingCache adds a second cache of Pods to the manager: of those that wait
// for a node, and with them perhaps for a claim. One cache holds one selection
// of a kind.
func pendingCache(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject:   observe.PendingByObject(),
	})
	if err != nil {
		return nil, fmt.Errorf("build cache of waiting Pods: %w", err)
	}
	if err := observe.AddPendingIndexes(ctx, c); err != nil {
		return nil, err
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("add cache of waiting Pods: %w", err)
	}
	return c, nil
}

func addAll(q workqueue.TypedInterface[observe.Key], keys []observe.Key) {
	for _, k := range keys {
		q.Add(k)
	}
}
