package populator

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/plugin"
	"github.com/sluice-dev/sluice/internal/registration"
)

// Setup adds the controller to a manager.
func Setup(_ context.Context, p manager.Parts) error {
	mgr := p.Manager
	p.Kinds.Watch(registration.Kind, kinds.Full)
	c := New(mgr.GetClient(), mgr.GetAPIReader(), p.Kinds, &definition.Finder{
		Mapper:      mgr.GetRESTMapper(),
		Definitions: mgr.GetAPIReader(),
	}, plugin.Asker{Clients: p.Plugins, Now: p.Now}, p.Now)
	w := &waker{cache: mgr.GetCache()}
	err := builder.ControllerManagedBy(mgr).
		Named("populator").
		// A change of one concerns its rivals too.
		Watches(&v1alpha1.Populator{}, handler.EnqueueRequestsFromMapFunc(w.rivals)).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(w.definition),
			builder.OnlyMetadata, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			p.Kinds.Listen(func(change kinds.Change) {
				for _, r := range w.kind(ctx, change) {
					q.Add(r)
				}
			})
			return nil
		})).
		// Verdicts on rivals are given one after the other.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), c))
	if err != nil {
		return fmt.Errorf("add controller %q: %w", "populator", err)
	}
	return nil
}

// waker knows which Populators a change concerns.
type waker struct{ cache client.Reader }

// rivals maps a Populator to all of its kind, itself among them.
func (w *waker) rivals(ctx context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*v1alpha1.Populator)
	if !ok {
		return nil
	}
	return w.where(ctx, func(kind schema.GroupKind) bool { return kind == registration.KindOf(p) })
}

// definition maps the definition of a kind to the Populators of its group: the
// name says the group, but not the kind.
func (w *waker) definition(ctx context.Context, o client.Object) []reconcile.Request {
	_, group, _ := strings.Cut(o.GetName(), ".")
	return w.where(ctx, func(kind schema.GroupKind) bool { return kind.Group == group })
}

// kind maps a kind that became readable or no longer is to its Populators, and
// a change of a registration to all of them.
func (w *waker) kind(ctx context.Context, c kinds.Change) []reconcile.Request {
	switch {
	case c.Kind == registration.Kind:
		return w.where(ctx, func(schema.GroupKind) bool { return true })
	case c.Name == "":
		return w.where(ctx, func(kind schema.GroupKind) bool { return kind == c.Kind })
	}
	return nil // a source came or went: none of this controller's business
}

func (w *waker) where(ctx context.Context, matches func(schema.GroupKind) bool) []reconcile.Request {
	var list v1alpha1.PopulatorList
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "list populators to wake")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if matches(registration.KindOf(&list.Items[i])) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}
