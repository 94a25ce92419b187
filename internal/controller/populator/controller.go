// Package populator decides which Populators are served and says so in their
// Accepted condition. For each accepted one it keeps a VolumePopulator, the
// registration that the Kubernetes project's own tools look at.
package populator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/registration"
)

// fieldManager owns what the controller writes.
const fieldManager = "sluice-populator"

// Definitions finds the definition of a source kind.
type Definitions interface {
	Find(ctx context.Context, kind schema.GroupKind) (definition.Definition, error)
}

// Kinds watches kinds that may be missing; see package kinds.
type Kinds interface {
	registration.Watched
	Watch(kind schema.GroupKind, depth kinds.Depth)
	State(kind schema.GroupKind) kinds.State
}

// Controller reconciles Populators.
type Controller struct {
	// client reads Populators from the cache and writes to the API server; live
	// reads from the API server.
	client client.Client
	live   client.Reader

	kinds       Kinds
	definitions Definitions
	plugins     Plugins
	silences    silences
	now         func() time.Time
}

var _ reconcile.ObjectReconciler[*v1alpha1.Populator] = (*Controller)(nil)

// New returns a Controller.
func New(c client.Client, live client.Reader, k Kinds, d Definitions, plugins Plugins, now func() time.Time) *Controller {
	return &Controller{client: c, live: live, kinds: k, definitions: d, plugins: plugins, now: now}
}

// Reconcile judges one Populator. All that the verdict depends on is watched, but
// for plugins, which are asked from time to time; a right that may be on its way
// is waited for, once.
func (c *Controller) Reconcile(ctx context.Context, p *v1alpha1.Populator) (reconcile.Result, error) {
	if p.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // its VolumePopulator goes with it
	}
	s, err := c.observe(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := judge(s)
	if v.accepted && p.Spec.Plugin != nil {
		v = c.ask(ctx, p)
	}
	if v.reason == "" {
		return reconcile.Result{RequeueAfter: v.again}, nil
	}
	if err := c.record(ctx, p, v); err != nil {
		// A conflict means that the Populator changed: that is told by its watch.
		return reconcile.Result{}, ignoreConflict(err)
	}
	if v.accepted {
		return reconcile.Result{RequeueAfter: v.again}, c.register(ctx, p)
	}
	return reconcile.Result{RequeueAfter: v.again}, c.unregister(ctx, p)
}

// observe gathers the situation of a Populator.
func (c *Controller) observe(ctx context.Context, p *v1alpha1.Populator) (situation, error) {
	kind := registration.KindOf(p)
	c.kinds.Watch(kind, kinds.Metadata)
	s := situation{populator: p, oldest: p, source: c.kinds.State(kind), now: c.now()}
	var list v1alpha1.PopulatorList
	if err := c.client.List(ctx, &list); err != nil {
		return s, fmt.Errorf("list populators: %w", err)
	}
	if all := registration.Of(list.Items, kind); len(all) > 0 {
		s.oldest = all[0]
	}
	s.foreign, s.registrations = registration.Others(c.kinds, kind)
	var err error
	s.definition, err = c.definitions.Find(ctx, kind)
	return s, err
}

// record writes the verdict into the status, if it is another one.
func (c *Controller) record(ctx context.Context, p *v1alpha1.Populator, v verdict) error {
	changed := p.DeepCopy()
	changed.Status.ObservedGeneration = p.Generation
	news := meta.SetStatusCondition(&changed.Status.Conditions, v.condition(p.Generation))
	changed.Status.Plugin = v.plugin
	if !news && changed.Status.ObservedGeneration == p.Status.ObservedGeneration && equality.Semantic.DeepEqual(changed.Status.Plugin, p.Status.Plugin) {
		return nil
	}
	if err := c.client.Status().Update(ctx, changed, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("update status of Populator %q: %w", p.Name, err)
	}
	logf.FromContext(ctx).Info("judged populator", "accepted", v.accepted, "reason", v.reason)
	return nil
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
