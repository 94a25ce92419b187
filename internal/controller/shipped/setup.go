package shipped

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/manager"
)

// The pace at which applying is tried again: a webhook takes a few seconds to
// be reached after its manager has started.
const (
	retryFirst    = 200 * time.Millisecond
	retryAtMost   = 5 * time.Second
	ownerPatience = 10 * time.Second
)

// eventController is the reporting controller of events about Populators.
const eventController = "sluice.dev/populator"

// Setup adds the controller to a manager that was given Populators.
func Setup(_ context.Context, p manager.Parts) error {
	if p.Options.Populators == "" {
		return nil
	}
	shipped, err := Load(p.Options.Populators)
	if err != nil {
		return err
	}
	mgr := p.Manager
	recorder := p.Events.Recorder(eventController)
	tell := func(p *v1alpha1.Populator, message string) {
		recorder.Eventf(p, nil, corev1.EventTypeWarning, v1alpha1.ReasonPopulatorKept, "Apply", "%s", message)
	}
	isShipped := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := shipped[o.GetName()]
		return ok
	})
	err = builder.ControllerManagedBy(mgr).
		Named("shipped").
		Watches(&v1alpha1.Populator{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(isShipped)).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for name := range shipped {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryAtMost),
		}).
		Complete(New(mgr.GetClient(), mgr.GetAPIReader(), shipped, tell))
	if err != nil {
		return fmt.Errorf("add controller %q: %w", "shipped", err)
	}
	return nil
}
