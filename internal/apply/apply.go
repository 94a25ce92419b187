// Package apply carries out the steps that a planner decided. Each step is one
// write to the API server with preconditions of its own: a step that was
// decided on stale knowledge does nothing and says so.
package apply

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// FieldOwner is the field manager of every write for a population.
const FieldOwner = "sluice-population"

// Outcome is what a step left behind, or found in its way. The zero Outcome
// means that nothing is known beyond what was.
type Outcome struct {
	// Objects are the newest states of the objects that were written, or of
	// the one that stood in the way of a create.
	Objects []client.Object

	// Deleted is the UID of an object that is deleted or being deleted.
	Deleted types.UID

	// Refused is set when the API server refused the write for a good reason
	// that trying again at once does not change.
	Refused *populate.Refusal

	// Stale says that the step was decided on outdated knowledge: nothing was
	// written, and a new observation will show why.
	Stale bool
}

// A Caller has plugins called. It takes the call and returns at once.
type Caller interface {
	Call(populate.CallPlugin)
}

// Applier writes to one API server, and has plugins called.
type Applier struct {
	reader client.Reader
	writer client.Client
	caller Caller
}

// New returns an Applier. The reader must read from the API server itself, not
// from a cache.
func New(live client.Reader, writer client.Client, caller Caller) *Applier {
	return &Applier{reader: live, writer: client.WithFieldOwner(writer, FieldOwner), caller: caller}
}

// Apply takes one step. An error means that it is not known whether the step
// was taken; refusals and stale steps are outcomes.
func (a *Applier) Apply(ctx context.Context, step populate.Step) (Outcome, error) {
	switch s := step.(type) {
	case populate.CreatePopulation:
		p := s.Population.DeepCopy()
		if p.Spec.Nonce == "" {
			p.Spec.Nonce = rand.Text()
		}
		return a.create(ctx, p, p.Spec.ClaimUID)
	case populate.DeletePopulation:
		return a.remove(ctx, &v1alpha1.Population{}, s.Namespace, s.Name, s.UID, "")
	case populate.Allocate:
		return a.patch(ctx, &v1alpha1.Population{}, target{s.Namespace, s.Name, s.UID, s.ResourceVersion},
			document{"spec": document{"attempt": s.To, "namespace": orNull(s.Temporaries)}})
	case populate.WriteStatus:
		return a.writeStatus(ctx, s)
	case populate.CreatePrime:
		return a.create(ctx, s.Prime.DeepCopy(), claimUID(s.Prime))
	case populate.CreateScout:
		return a.create(ctx, s.Scout.DeepCopy(), claimUID(s.Scout))
	case populate.CreateWorker:
		return a.createWorker(ctx, s)
	case populate.StartFill:
		return a.startFill(ctx, s)
	case populate.CallPlugin:
		a.caller.Call(s)
		return Outcome{}, nil
	case populate.DeletePrime:
		return a.remove(ctx, &corev1.PersistentVolumeClaim{}, s.Namespace, s.Name, s.UID, s.ResourceVersion)
	case populate.DeleteWorker:
		return a.remove(ctx, &corev1.Pod{}, s.Namespace, s.Name, s.UID, s.ResourceVersion)
	case populate.Rebind:
		return a.rebind(ctx, s)
	case populate.SetReclaimPolicy:
		return a.patch(ctx, &corev1.PersistentVolume{}, target{"", s.Volume, s.UID, s.ResourceVersion},
			document{"metadata": labels(s.Labels), "spec": document{"persistentVolumeReclaimPolicy": s.Policy}})
	case populate.LabelVolume:
		return a.patch(ctx, &corev1.PersistentVolume{}, target{"", s.Volume, s.UID, s.ResourceVersion},
			document{"metadata": labels(s.Labels)})
	case populate.ReleaseForeign:
		return a.patch(ctx, &corev1.PersistentVolume{}, target{"", s.Volume, s.UID, s.ResourceVersion},
			document{"spec": document{"claimRef": nil}})
	case populate.ReleasePrime:
		return a.patch(ctx, &corev1.PersistentVolumeClaim{}, target{s.Namespace, s.Name, s.UID, s.ResourceVersion},
			document{"metadata": document{"finalizers": s.Finalizers}})
	case populate.UnselectNode:
		return a.patch(ctx, &corev1.PersistentVolumeClaim{}, target{s.Namespace, s.Name, s.UID, s.ResourceVersion},
			document{"metadata": document{"annotations": document{annotationSelectedNode: nil}}})
	case populate.SetFinalizer:
		return a.setFinalizer(ctx, s)
	}
	return Outcome{}, fmt.Errorf("apply step %T: unknown step", step)
}

// annotationSelectedNode is how the scheduler tells which node a claim of a
// WaitForFirstConsumer class is to be provisioned for.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// claimUID is the claim that a temporary was made for.
func claimUID(o client.Object) types.UID { return types.UID(o.GetLabels()[v1alpha1.LabelClaimUID]) }

// create creates an object for a claim. One that stands under the name already
// is the outcome, for the planner to judge.
func (a *Applier) create(ctx context.Context, o client.Object, claim types.UID) (Outcome, error) {
	err := a.writer.Create(ctx, o)
	switch {
	case err == nil:
		return Outcome{Objects: []client.Object{o}}, nil
	case apierrors.IsAlreadyExists(err):
		return a.standing(ctx, o, claim)
	case apierrors.IsNotFound(err): // the namespace, or what the object belongs to, is gone
		return Outcome{Stale: true}, nil
	case turnedAway(err):
		return refusal(v1alpha1.ReasonRequestRefused, err), nil
	}
	return refusedOr(err, "create", o)
}

// standing reads the object that stood in the way of a create. If it belongs
// to another claim, or to nobody, the name is taken.
func (a *Applier) standing(ctx context.Context, o client.Object, claim types.UID) (Outcome, error) {
	found, _ := o.DeepCopyObject().(client.Object) // a deep copy has the type of its original
	err := a.reader.Get(ctx, client.ObjectKeyFromObject(o), found)
	if apierrors.IsNotFound(err) {
		return Outcome{Stale: true}, nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("get %T %q: %w", o, client.ObjectKeyFromObject(o), err)
	}
	out := Outcome{Objects: []client.Object{found}}
	if _, isPopulation := found.(*v1alpha1.Population); isPopulation {
		return out, nil
	}
	problem := ""
	switch {
	case claimUID(found) != claim:
		problem = "was not made for this claim; delete or rename it"
	case !sameFiles(o, found):
		problem = "does not hold the files that the worker is to read"
	}
	if problem != "" {
		out.Refused = &populate.Refusal{
			Reason:  v1alpha1.ReasonNameTaken,
			Message: fmt.Sprintf("%s %q exists and %s", kindOf(found), found.GetName(), problem),
		}
	}
	return out, nil
}

// sameFiles says whether a ConfigMap that stands may serve for the one that was
// to be created: made for the same population, with the same contents. One of
// an earlier rendering would fill the volume from what the source was then. It
// is true of every other kind, which the planner judges.
func sameFiles(wanted, found client.Object) bool {
	w, isFiles := wanted.(*corev1.ConfigMap)
	f, _ := found.(*corev1.ConfigMap) // found has the type of wanted
	return !isFiles || w.Annotations[v1alpha1.AnnotationNonce] == f.Annotations[v1alpha1.AnnotationNonce] &&
		equality.Semantic.DeepEqual(w.Data, f.Data) && equality.Semantic.DeepEqual(w.BinaryData, f.BinaryData)
}

// createWorker writes the record that a worker may exist from now on, then
// creates the ConfigMap of its files, if it has any, then the worker: no worker
// is without its record, and none waits for its files.
func (a *Applier) createWorker(ctx context.Context, s populate.CreateWorker) (Outcome, error) {
	out, err := a.writeStatus(ctx, s.Record)
	if !out.done() || err != nil {
		return out, err
	}
	next := []client.Object{s.Worker.DeepCopy()}
	if s.Files != nil {
		next = []client.Object{s.Files.DeepCopy(), next[0]}
	}
	for _, o := range next {
		made, err := a.create(ctx, o, claimUID(s.Worker))
		out.Objects = append(out.Objects, made.Objects...)
		out.Refused, out.Stale = made.Refused, made.Stale
		if !made.done() || err != nil {
			return out, err // what was written before counts, also beside an error
		}
	}
	return out, nil
}

// done says that the write took place, or need not.
func (o Outcome) done() bool { return o.Refused == nil && !o.Stale }

// remove deletes an object in the background, if it is still the one that was
// judged.
func (a *Applier) remove(ctx context.Context, o client.Object, namespace, name string, uid types.UID, resourceVersion string) (Outcome, error) {
	o.SetNamespace(namespace)
	o.SetName(name)
	preconditions := client.Preconditions{UID: &uid}
	if resourceVersion != "" {
		preconditions.ResourceVersion = &resourceVersion
	}
	err := a.writer.Delete(ctx, o, preconditions, client.PropagationPolicy(metav1.DeletePropagationBackground))
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return Outcome{Deleted: uid}, nil
	case apierrors.IsConflict(err):
		return Outcome{Stale: true}, nil
	}
	return Outcome{}, fmt.Errorf("delete %s %q: %w", kindOf(o), client.ObjectKeyFromObject(o), err)
}

// startFill has the plugin called only once the record of it stands.
func (a *Applier) startFill(ctx context.Context, s populate.StartFill) (Outcome, error) {
	out, err := a.writeStatus(ctx, s.Record)
	if err == nil && !out.Stale && out.Refused == nil {
		a.caller.Call(s.Start)
	}
	return out, err
}

func (a *Applier) writeStatus(ctx context.Context, s populate.WriteStatus) (Outcome, error) {
	// Everything but the status and the preconditions is ignored by the server
	// on this subresource.
	p := &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion},
	}
	s.Status.DeepCopyInto(&p.Status)
	return outcome(p, a.writer.Status().Update(ctx, p), "write status of")
}
