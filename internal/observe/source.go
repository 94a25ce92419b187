package observe

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/registration"
)

// verdict is what the validations said about one revision of everything they
// look at.
type verdict struct {
	populator       types.UID
	generation      int64
	source          types.UID
	resourceVersion string
	claimVersion    string
	reason, message string
	objects         []populate.NamedObject
}

func (v verdict) about(p *v1alpha1.Populator, source metav1.Object, claim *corev1.PersistentVolumeClaim) bool {
	return v.source == source.GetUID() && v.resourceVersion == source.GetResourceVersion() &&
		v.populator == p.UID && v.generation == p.Generation && v.claimVersion == claim.ResourceVersion
}

// populator returns the Populator that serves a source kind, nil if none does.
// One that would, if only its plugin answered, is returned too: its claims wait
// for the plugin.
func (ob *Observer) populator(ctx context.Context, ref SourceRef) (*v1alpha1.Populator, error) {
	var list v1alpha1.PopulatorList
	if err := ob.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list populators: %w", err)
	}
	for _, p := range registration.Of(list.Items, ref.Kind) {
		if registration.Accepted(p) || populate.PluginAway(p) != "" {
			return p, nil
		}
	}
	return nil, nil
}

// registeredElsewhere says whether somebody else registered a source kind, and
// whether that is not known yet.
func (ob *Observer) registeredElsewhere(ref SourceRef) (elsewhere, loading bool) {
	others, state := registration.Others(ob.Kinds, ref.Kind)
	return len(others) > 0, state.Status == kinds.Starting
}

// source looks for a claim's source and lets the Populator's validations judge
// it. Without a Populator it says no more than where the source would be. One in
// another namespace is not even looked for without a grant: whether it exists is
// not for everybody to know.
func (ob *Observer) source(ctx context.Context, p *v1alpha1.Populator, ref SourceRef, claim *corev1.PersistentVolumeClaim) (s populate.Source, loading bool, err error) {
	s.Namespace = ref.Namespace
	if p == nil {
		// Nobody reads it any more but a worker that runs on, if it is granted.
		return s, ref.Namespace != claim.Namespace && ob.grant(ref, claim.Namespace, &s), nil
	}
	if ref.Namespace != claim.Namespace {
		if loading = ob.grant(ref, claim.Namespace, &s); loading || !s.Granted {
			return s, loading, nil
		}
	}
	seen, state := ob.Kinds.Get(ref.Kind, ref.Namespace, ref.Name)
	switch {
	case state.Status == kinds.Starting, state.Status == kinds.Unwatched:
		return s, true, nil
	case state.Status == kinds.NotReadable:
		s.State, s.Detail = populate.SourceKindNotReadable, state.Detail
		return s, false, nil
	case seen == nil:
		s.State = populate.SourceNotFound
		return s, false, nil
	}
	s.State, s.UID, s.Generation = populate.SourceFound, seen.GetUID(), seen.GetGeneration()
	if !judges(p) {
		return s, false, nil
	}
	v := ob.Memory.verdict(claim.UID)
	if !v.about(p, seen, claim) {
		object, err := ob.Kinds.Fetch(ctx, ref.Kind, ref.Namespace, ref.Name)
		if err != nil {
			return s, false, unreadable(err, &s)
		}
		s.UID, s.Generation = object.GetUID(), object.GetGeneration()
		v = verdict{
			populator: p.UID, generation: p.Generation, claimVersion: claim.ResourceVersion,
			source: object.GetUID(), resourceVersion: object.GetResourceVersion(),
		}
		v.objects, v.reason, v.message = ob.judge(p, object, claim)
		ob.Memory.judged(claim.UID, v)
	}
	s.Objects, s.InvalidReason, s.Invalid = v.objects, v.reason, v.message
	return s, false, nil
}

// judges says that a Populator looks into sources before it renders them.
func judges(p *v1alpha1.Populator) bool {
	return len(p.Spec.Validations) > 0 || p.Spec.Worker != nil && len(p.Spec.Worker.SourceVolumes) > 0
}

// judge says what a source names for its worker, and the first thing that is
// wrong with it.
func (ob *Observer) judge(p *v1alpha1.Populator, source *unstructured.Unstructured, claim *corev1.PersistentVolumeClaim) (objects []populate.NamedObject, reason, message string) {
	if reason, message = ob.Templates.Validate(p, source, claim); reason != "" {
		return nil, reason, message
	}
	if p.Spec.Worker == nil || len(p.Spec.Worker.SourceVolumes) == 0 {
		return nil, "", ""
	}
	return ob.Templates.Names(p, source)
}

// unreadable puts into s why a source could not be read; the error is nil then.
func unreadable(err error, s *populate.Source) error {
	switch {
	case apierrors.IsNotFound(err):
		s.State = populate.SourceNotFound
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err), isNoMatch(err):
		s.State, s.Detail = populate.SourceKindNotReadable, err.Error()
	default:
		return err
	}
	return nil
}

func isNoMatch(err error) bool {
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	return errors.As(err, &kind) || errors.As(err, &resource)
}
