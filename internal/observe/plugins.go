package observe

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// PluginReads reads what calls of plugins are about, from where observations are
// read.
type PluginReads struct{ *Observer }

// Populator returns a Populator, nil if there is none.
func (r PluginReads) Populator(ctx context.Context, name string) (*v1alpha1.Populator, error) {
	return get(ctx, r.Cache, types.NamespacedName{Name: name}, &v1alpha1.Populator{})
}

// Claim returns the claim of this UID, nil if it is gone or going.
func (r PluginReads) Claim(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.PersistentVolumeClaim, error) {
	claim, err := get(ctx, r.Live, key, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || claim.UID != uid || claim.DeletionTimestamp != nil {
		return nil, err
	}
	return claim, nil
}

// Volume returns a volume with all that its driver noted.
func (r PluginReads) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(ctx, r.Live, types.NamespacedName{Name: name}, &corev1.PersistentVolume{})
}

// Source returns the claim's source as it stands, if the claim may use it and it
// is valid; else a reason and a message.
func (r PluginReads) Source(ctx context.Context, p *v1alpha1.Populator, claim *corev1.PersistentVolumeClaim) (source *unstructured.Unstructured, reason, message string, err error) {
	f, err := r.fetch(ctx, p, claim)
	return f.object, f.reason, f.message, err
}

// fetched is a source that was read whole, or why there is none.
type fetched struct {
	object          *unstructured.Unstructured
	source          populate.Source
	reason, message string
}

// fetch reads a claim's source whole, and judges grant and validations anew on
// what was read: the claim may be newer than the one that was judged before, and
// so may the source.
func (ob *Observer) fetch(ctx context.Context, p *v1alpha1.Populator, claim *corev1.PersistentVolumeClaim) (f fetched, err error) {
	ref, ok := SourceOf(claim)
	if !ok {
		f.reason, f.message = v1alpha1.ReasonTemplateFailed, "The claim has no source of a populated kind"
		return f, nil
	}
	f.source = populate.Source{Namespace: ref.Namespace}
	if ref.Namespace != claim.Namespace {
		if ob.grant(ref, claim.Namespace, &f.source) {
			return f, fmt.Errorf("look for a grant of namespace %q: the grants are still being read", ref.Namespace)
		}
		if !f.source.Granted {
			f.reason, f.message = v1alpha1.ReasonNotGranted, "The source is in a namespace that does not grant it to the claim's"
			return f, nil
		}
	}
	object, err := ob.Kinds.Fetch(ctx, ref.Kind, ref.Namespace, ref.Name)
	if err != nil {
		if err := unreadable(err, &f.source); err != nil {
			return f, err
		}
		f.reason, f.message = v1alpha1.ReasonSourceNotFound, "The source went away while it was about to be used"
		if f.source.State == populate.SourceKindNotReadable {
			f.reason, f.message = v1alpha1.ReasonSourceKindNotReadable, f.source.Detail
		}
		return f, nil
	}
	f.source.State, f.source.UID, f.source.Generation = populate.SourceFound, object.GetUID(), object.GetGeneration()
	if judges(p) {
		objects, reason, message := ob.judge(p, object, claim)
		if f.source.Objects = objects; reason != "" {
			f.source.InvalidReason, f.source.Invalid = reason, message
			f.reason, f.message = reason, message
			return f, nil
		}
	}
	f.object = object
	return f, nil
}

// given renders the worker that a plugin computed for an attempt.
func (ob *Observer) given(o *populate.Observed, attempt int32) (*populate.Rendered, error) {
	pv, volume := primeVolume(o), ""
	if pv != nil {
		volume = pv.Name
	}
	id := populate.ComputeID(o.ClaimUID, attempt, volume)
	for _, a := range o.Answers {
		if a.Call != populate.CallCompute || a.ID != id || a.Worker == nil {
			continue
		}
		return ob.Templates.Given(o.Populator, a.Worker, o.Claim, pv, attempt), nil
	}
	return nil, errors.New("render the worker of a plugin: it has computed none")
}
