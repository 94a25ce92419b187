package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// VolumePopulatorKind is the Kubernetes project's registration kind. Its
// definition may be missing from a cluster.
var VolumePopulatorKind = schema.GroupKind{Group: v1beta1.GroupName, Kind: "VolumePopulator"}

// verdict is what the validations said about one revision of everything they
// look at.
type verdict struct {
	populator       types.UID
	generation      int64
	source          types.UID
	resourceVersion string
	reason, message string
}

func (v verdict) about(p *v1alpha1.Populator, uid types.UID, resourceVersion string) bool {
	return v.source == uid && v.resourceVersion == resourceVersion && v.populator == p.UID && v.generation == p.Generation
}

// populator returns the Populator that serves a source kind, nil if none does.
func (ob *Observer) populator(ctx context.Context, ref SourceRef) (*v1alpha1.Populator, error) {
	var list v1alpha1.PopulatorList
	if err := ob.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list populators: %w", err)
	}
	serving := slices.DeleteFunc(slices.Clone(list.Items), func(p v1alpha1.Populator) bool {
		return p.Spec.SourceKind.Group != ref.Kind.Group || p.Spec.SourceKind.Kind != ref.Kind.Kind || !accepted(&p)
	})
	if len(serving) == 0 {
		return nil, nil
	}
	slices.SortFunc(serving, func(a, b v1alpha1.Populator) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return &serving[0], nil
}

// accepted says that a Populator is served in the generation that is stored.
func accepted(p *v1alpha1.Populator) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == "True" && c.ObservedGeneration == p.Generation && p.DeletionTimestamp == nil
}

// registeredElsewhere says whether somebody else registered a source kind, and
// whether that is not known yet.
func (ob *Observer) registeredElsewhere(ref SourceRef) (elsewhere, loading bool) {
	registrations, state := ob.Kinds.List(VolumePopulatorKind)
	if state.Status == kinds.Starting {
		return false, true
	}
	for _, r := range registrations {
		u, ok := r.(*unstructured.Unstructured)
		if !ok || ours(u) {
			continue
		}
		group, _, _ := unstructured.NestedString(u.Object, "sourceKind", "group")
		kind, _, _ := unstructured.NestedString(u.Object, "sourceKind", "kind")
		if group == ref.Kind.Group && kind == ref.Kind.Kind {
			return true, false
		}
	}
	return false, false
}

// ours says that a registration was made for a Populator.
func ours(registration *unstructured.Unstructured) bool {
	return slices.ContainsFunc(registration.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.Kind == "Populator" && strings.HasPrefix(r.APIVersion, v1alpha1.GroupName+"/")
	})
}

// source looks for a claim's source and lets the Populator's validations judge
// it.
func (ob *Observer) source(ctx context.Context, p *v1alpha1.Populator, ref SourceRef, claim *corev1.PersistentVolumeClaim) (s populate.Source, loading bool, err error) {
	s.Namespace = ref.Namespace
	if ref.Namespace != claim.Namespace {
		if s.Granted, loading = ob.granted(ref, claim.Namespace); loading {
			return s, true, nil
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
	if len(p.Spec.Validations) == 0 {
		return s, false, nil
	}
	v := ob.Memory.verdict(claim.UID)
	if !v.about(p, seen.GetUID(), seen.GetResourceVersion()) {
		object, err := ob.Kinds.Fetch(ctx, ref.Kind, ref.Namespace, ref.Name)
		if err != nil {
			return s, false, unreadable(err, &s)
		}
		s.UID, s.Generation = object.GetUID(), object.GetGeneration()
		v = verdict{populator: p.UID, generation: p.Generation, source: object.GetUID(), resourceVersion: object.GetResourceVersion()}
		v.reason, v.message = ob.Templates.Validate(p, object, claim)
		ob.Memory.judged(claim.UID, v)
	}
	s.InvalidReason, s.Invalid = v.reason, v.message
	return s, false, nil
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
