package datasource

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/registration"
)

// reporter is the reporting controller of the events.
const reporter = "sluice.dev/datasource"

// Setup adds the controller to a manager, whose cache has the indexes of
// observe.AddIndexes.
func Setup(_ context.Context, p manager.Parts) error {
	mgr := p.Manager
	p.Kinds.Watch(registration.Kind, kinds.Full)
	c := New(mgr.GetCache(), &registration.Finder{Cache: mgr.GetCache(), Kinds: p.Kinds}, p.Namespaces(), p.Events.Recorder(reporter), p.Now)
	w := &waker{cache: mgr.GetCache()}
	err := builder.ControllerManagedBy(mgr).
		Named("datasource").
		Watches(&corev1.PersistentVolumeClaim{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return waits(e.Object) },
			// Once more when it no longer waits, to be forgotten.
			UpdateFunc: func(e event.UpdateEvent) bool { return waits(e.ObjectOld) && !waits(e.ObjectNew) },
			DeleteFunc: func(e event.DeleteEvent) bool { return waits(e.Object) },
		})).
		Watches(&v1alpha1.Populator{}, handler.EnqueueRequestsFromMapFunc(w.populator)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.namespace),
			builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			p.Kinds.Listen(func(change kinds.Change) {
				if change.Kind != registration.Kind {
					return
				}
				for _, r := range w.all(ctx) {
					q.Add(r)
				}
			})
			return nil
		})).
		Complete(c)
	if err != nil {
		return fmt.Errorf("add controller %q: %w", "datasource", err)
	}
	return nil
}

// waits says that a claim waits for a volume filled from a source. A source
// cannot be changed later.
func waits(o client.Object) bool {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return false
	}
	_, ok = observe.SourceOf(claim)
	return ok
}

// waker knows which claims a change concerns.
type waker struct{ cache client.Reader }

// populator maps a Populator to the claims that wait for its kind.
func (w *waker) populator(ctx context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*v1alpha1.Populator)
	if !ok {
		return nil
	}
	return w.list(ctx, client.MatchingFields{observe.IndexSourceKind: registration.KindOf(p).String()})
}

// namespace maps a namespace, whose labels may have kept Sluice out, to the
// claims that wait in it.
func (w *waker) namespace(ctx context.Context, o client.Object) []reconcile.Request {
	return w.list(ctx, client.InNamespace(o.GetName()))
}

// all returns all claims that wait. Registrations of other controllers seldom
// change, and which kind a deleted one named is not known any more.
func (w *waker) all(ctx context.Context) []reconcile.Request { return w.list(ctx) }

func (w *waker) list(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := w.cache.List(ctx, &claims, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		logf.FromContext(ctx).Error(err, "list claims to wake")
		return nil
	}
	var out []reconcile.Request
	for i := range claims.Items {
		if waits(&claims.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		}
	}
	return out
}
