// Package datasource warns about claims that nobody will fill: those whose data
// source is of a kind that no populator registered. It is what the Kubernetes
// project calls the volume data source validator.
//
// A claim gets one Warning event for each thing that is wrong. What it was told
// is remembered in memory: a manager that takes over says it once more.
package datasource

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/registration"
)

// grace is how long a kind may be without a populator before anybody is warned:
// claims, Populators and kinds are often applied together.
const grace = 2 * time.Second

// action is what the manager was about, in the events.
const action = "Validate"

// Finder says who registered a source kind.
type Finder interface {
	Find(ctx context.Context, kind schema.GroupKind) (registration.Registration, error)
}

// Namespaces says which namespaces Sluice keeps out of.
type Namespaces interface {
	Out(ctx context.Context, name string) (bool, error)
}

// Controller reconciles claims.
type Controller struct {
	cache         client.Reader
	registrations Finder
	namespaces    Namespaces
	events        events.EventRecorder
	now           func() time.Time

	mu    sync.Mutex
	known map[types.NamespacedName]memory
}

// A memory is what is remembered of a claim that has a problem.
type memory struct {
	uid   types.UID
	since time.Time
	told  string
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that reads claims and Populations from cache.
func New(cache client.Reader, f Finder, n Namespaces, to events.EventRecorder, now func() time.Time) *Controller {
	return &Controller{cache: cache, registrations: f, namespaces: n, events: to, now: now, known: map[types.NamespacedName]memory{}}
}

// Reconcile warns about one claim, if that is due.
func (c *Controller) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.cache.Get(ctx, r.NamespacedName, claim); err != nil {
		c.forget(r.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	problem, err := c.problem(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	if problem == "" {
		c.forget(r.NamespacedName)
		return reconcile.Result{}, nil
	}
	tell, again := c.due(r.NamespacedName, claim.UID, problem)
	if tell {
		c.events.Eventf(claim, nil, corev1.EventTypeWarning, v1alpha1.ReasonUnrecognizedKind, action, "%s", problem)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// problem is why a claim will not be filled; empty if it is filled, or does not
// ask to be, or is somebody else's business.
func (c *Controller) problem(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	ref, ok := observe.SourceOf(claim)
	if !ok || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Status.Phase == corev1.ClaimBound {
		return "", nil
	}
	found, err := c.registrations.Find(ctx, ref.Kind)
	if err != nil || found.Problem() == "" {
		return "", err
	}
	ours, err := c.begun(ctx, claim)
	if err != nil || ours {
		return "", err // the population tells what became of it
	}
	out, err := c.namespaces.Out(ctx, claim.Namespace)
	if err != nil || out {
		return "", err
	}
	return found.Problem(), nil
}

// begun says whether the claim's population was begun while somebody served its
// kind.
func (c *Controller) begun(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	var p v1alpha1.Population
	err := c.cache.Get(ctx, client.ObjectKeyFromObject(claim), &p)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get Population %q: %w", claim.Namespace+"/"+claim.Name, err)
	}
	return p.Spec.ClaimUID == claim.UID, nil
}

// due says whether to tell a problem of a claim now and, if not now, after what
// time.
func (c *Controller) due(name types.NamespacedName, uid types.UID, problem string) (tell bool, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.known[name]
	if !ok || m.uid != uid {
		m = memory{uid: uid, since: c.now()}
	}
	if wait := m.since.Add(grace).Sub(c.now()); wait > 0 {
		again = wait
	} else if tell = m.told != problem; tell {
		m.told = problem
	}
	c.known[name] = m
	return tell, again
}

func (c *Controller) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}
