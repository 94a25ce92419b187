// Package population runs the population engine: one reconcile of one claim
// observes, lets the planner decide, and takes its steps one after another.
package population

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/apply"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// maxSteps bounds one reconcile. A whole population takes fewer; what is left
// is done by the next reconcile.
const maxSteps = 16

// An Observer makes observations of one claim.
type Observer interface {
	// Observe reads caches. It says pending when something is still loading.
	Observe(ctx context.Context, key observe.Key) (o populate.Observed, pending bool, err error)
	// Deepen reads more for the same observation.
	Deepen(ctx context.Context, o populate.Observed, need populate.Need) (populate.Observed, error)
}

// An Applier takes steps.
type Applier interface {
	Apply(ctx context.Context, step populate.Step) (apply.Outcome, error)
}

// A Teller tells events on claims.
type Teller interface {
	Tell(claim *corev1.PersistentVolumeClaim, e populate.Event)
}

// Plugins remembers what plugins answered.
type Plugins interface {
	Answers(claim types.UID) []populate.Answer
	Forget(claim types.UID)
}

// Namespaces says which namespaces Sluice keeps out of.
type Namespaces interface {
	Out(ctx context.Context, namespace string) (bool, error)
}

// Slots keep account of what is being filled at the same time.
type Slots interface {
	// Ask asks for the slots of the claim of an observation.
	Ask(ctx context.Context, o populate.Observed) (slots.Verdict, error)
	// Note takes down where a claim is when a reconcile comes to rest.
	Note(o populate.Observed)
}

// Controller reconciles claims by key.
type Controller struct {
	observer   Observer
	applier    Applier
	teller     Teller
	namespaces Namespaces
	slots      Slots
	memory     *observe.Memory
	plugins    Plugins
	next       func(populate.Observed) populate.Decision
	now        func() time.Time
}

// New returns a Controller that decides with populate.Next.
func New(observer Observer, applier Applier, teller Teller, namespaces Namespaces, slots Slots, memory *observe.Memory, plugins Plugins, now func() time.Time) *Controller {
	return &Controller{
		slots: slots, observer: observer, applier: applier, teller: teller, namespaces: namespaces, memory: memory, plugins: plugins,
		next: populate.Next, now: now,
	}
}

// Reconcile brings one claim as far as it can be brought now.
func (c *Controller) Reconcile(ctx context.Context, key observe.Key) (ctrl.Result, error) {
	o, pending, err := c.observer.Observe(ctx, key)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe claim %q: %w", key, err)
	}
	if pending {
		return ctrl.Result{}, nil // whoever loads it wakes the claim
	}
	if out, err := c.keepsOut(ctx, o); out || err != nil {
		if out {
			c.slots.Note(o)
		}
		return ctrl.Result{}, err
	}
	for range maxSteps {
		var d populate.Decision
		if o, d, err = c.decide(ctx, o); err != nil {
			return ctrl.Result{}, err
		}
		if d.Step == nil {
			if d.Event != nil && o.Claim != nil {
				c.teller.Tell(o.Claim, *d.Event)
				c.memory.Told(o.ClaimUID)
			}
			c.slots.Note(o)
			c.rest(o, d)
			return ctrl.Result{RequeueAfter: d.RequeueAfter}, nil
		}
		out, err := c.applier.Apply(ctx, d.Step)
		before := status(o)
		o = c.take(o, d, out, err)
		if err != nil {
			return ctrl.Result{}, err
		}
		if out.Stale {
			return ctrl.Result{RequeueAfter: c.memory.Stale(key.UID)}, nil
		}
		if out.Refused == nil {
			c.done(ctx, o, d, before)
		} else {
			ctrl.LoggerFrom(ctx).Info("write refused", "why", d.Why, "reason", out.Refused.Reason, "message", out.Refused.Message)
		}
	}
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

// keepsOut says whether a claim is to be left as it is because of its
// namespace. Claims that are going are cleaned up after everywhere.
func (c *Controller) keepsOut(ctx context.Context, o populate.Observed) (bool, error) {
	if o.Claim == nil || o.Claim.UID != o.ClaimUID || o.Claim.DeletionTimestamp != nil {
		return false, nil
	}
	return c.namespaces.Out(ctx, o.Namespace)
}

// decide asks the planner, and deepens the observation for as long as it asks.
func (c *Controller) decide(ctx context.Context, o populate.Observed) (populate.Observed, populate.Decision, error) {
	var asked populate.Need
	for {
		d := c.next(o)
		if d.Need == 0 {
			return o, d, nil
		}
		if d.Need&^asked == 0 {
			return o, d, errors.New("the planner asked for the same depth twice: " + d.Why)
		}
		asked |= d.Need
		if d.Need&populate.NeedSlot != 0 {
			verdict, err := c.slots.Ask(ctx, o)
			if err != nil {
				return o, d, fmt.Errorf("ask for the turn of claim %q: %w", o.Namespace+"/"+o.Name, err)
			}
			o.Slot = &verdict
		}
		deeper, err := c.observer.Deepen(ctx, o, d.Need)
		if err != nil {
			return o, d, fmt.Errorf("observe claim %q more closely: %w", o.Namespace+"/"+o.Name, err)
		}
		o = deeper
	}
}

// take puts what a step brought about into the observation, so that the next
// step is decided on it, and into the memory, so that a reconcile that runs
// before the caches have it does not repeat the step. A step that ended in an
// error was not accepted: what was refused before stays refused.
func (c *Controller) take(o populate.Observed, d populate.Decision, out apply.Outcome, err error) populate.Observed {
	o.Now = c.now()
	o.Answers = c.plugins.Answers(o.ClaimUID)
	for _, written := range out.Objects {
		c.memory.Wrote(o.ClaimUID, written)
		o = observe.With(o, written)
	}
	if out.Deleted != "" {
		c.memory.Deleted(o.ClaimUID, out.Deleted)
		o = observe.Without(o, out.Deleted, o.Now)
	}
	switch {
	case out.Refused != nil:
		refused := *out.Refused
		refused.At, refused.Step = o.Now, populate.Kind(d.Step)
		o.Refused = c.memory.Refused(o.ClaimUID, refused)
	case err != nil && !workerInDoubt(d.Step, out):
	case !tells(d.Step):
		c.memory.Accepted(o.ClaimUID)
		o.Refused = populate.Refusal{}
	}
	return o
}

// tells says that a step only writes down where the claim is, or asks a plugin
// something; that it was accepted says nothing about what was refused before.
func tells(s populate.Step) bool {
	switch s.(type) {
	case populate.WriteStatus, populate.CallPlugin:
		return true
	default:
		return false
	}
}

// workerInDoubt says of a step that ended in an error that a worker may exist
// by now: its record was written, so that its create may have been sent. An
// earlier refusal is no proof any more that there never was one.
func workerInDoubt(s populate.Step, out apply.Outcome) bool {
	_, ok := s.(populate.CreateWorker)
	return ok && len(out.Objects) > 0
}

// done logs, counts and tells a step that was taken.
func (c *Controller) done(ctx context.Context, o populate.Observed, d populate.Decision, before v1alpha1.PopulationStatus) {
	log := ctrl.LoggerFrom(ctx)
	level := log.V(1)
	if !tells(d.Step) {
		level = log
	}
	level.Info("step taken", append([]any{"step", stepName(d.Step), "why", d.Why}, about(d.Step)...)...)
	count(o, d.Step, before)
	if d.Event != nil && o.Claim != nil && o.Claim.UID == o.ClaimUID {
		c.teller.Tell(o.Claim, *d.Event)
	}
}

// status is the status of the population, as far as it is recorded.
func status(o populate.Observed) v1alpha1.PopulationStatus {
	if o.Population == nil {
		return v1alpha1.PopulationStatus{}
	}
	return o.Population.Status
}

// rest is the end of a reconcile: nothing to write. A claim that needs nothing
// more is forgotten.
func (c *Controller) rest(o populate.Observed, d populate.Decision) {
	c.memory.Rested(o.ClaimUID)
	settled := o.Claim == nil || o.Claim.UID != o.ClaimUID || observe.Settled(o.Claim)
	if settled && len(o.Primes) == 0 && len(o.Workers) == 0 && d.RequeueAfter == 0 {
		c.memory.Forget(o.ClaimUID)
		c.plugins.Forget(o.ClaimUID)
	}
}

// LogConstructor returns loggers that name the claim of a reconcile.
func LogConstructor(base logr.Logger) func(*observe.Key) logr.Logger {
	return func(key *observe.Key) logr.Logger {
		if key == nil {
			return base
		}
		return base.WithValues("claim", types.NamespacedName{Namespace: key.Namespace, Name: key.Name}.String(), "uid", string(key.UID))
	}
}

var _ Observer = (*observe.Observer)(nil)

var _ Applier = (*apply.Applier)(nil)
