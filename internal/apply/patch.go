package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// document is a JSON merge patch (RFC 7386): nil removes a field.
type document map[string]any

// target is the object that a patch is meant for, in the version that was
// judged. A patch that names another resourceVersion than the object's is
// refused by the API server as a conflict.
type target struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
}

// patch changes some fields of o, which tells the kind and receives the result.
func (a *Applier) patch(ctx context.Context, o client.Object, t target, d document) (Outcome, error) {
	meta, ok := d["metadata"].(document)
	if !ok {
		meta = document{}
		d["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = t.uid, t.resourceVersion
	body, err := json.Marshal(d)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode patch of %q: %w", t.name, err)
	}
	o.SetNamespace(t.namespace)
	o.SetName(t.name)
	return outcome(o, a.writer.Patch(ctx, o, client.RawPatch(types.MergePatchType, body)), "patch")
}

func (a *Applier) rebind(ctx context.Context, s populate.Rebind) (Outcome, error) {
	// A merge patch merges: every field is named, so that none of the prime's
	// stays.
	spec := document{"claimRef": document{
		"apiVersion":      orNull(s.ClaimRef.APIVersion),
		"kind":            orNull(s.ClaimRef.Kind),
		"namespace":       orNull(s.ClaimRef.Namespace),
		"name":            orNull(s.ClaimRef.Name),
		"uid":             orNull(string(s.ClaimRef.UID)),
		"resourceVersion": orNull(s.ClaimRef.ResourceVersion),
		"fieldPath":       orNull(s.ClaimRef.FieldPath),
	}}
	if len(s.AccessModes) > 0 {
		spec["accessModes"] = s.AccessModes
	}
	return a.patch(ctx, &corev1.PersistentVolume{}, target{"", s.Volume, s.UID, s.ResourceVersion},
		document{"metadata": labels(s.Labels), "spec": spec})
}

// labels is the part of a patch that changes labels; an empty value removes one.
func labels(changes map[string]string) document {
	if len(changes) == 0 {
		return document{}
	}
	out := document{}
	for k, v := range changes {
		out[k] = orNull(v)
	}
	return document{"labels": out}
}

// setFinalizer reads the list first: a merge patch replaces lists whole. The
// resourceVersion keeps what others wrote meanwhile.
func (a *Applier) setFinalizer(ctx context.Context, s populate.SetFinalizer) (Outcome, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := a.reader.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return Outcome{Deleted: s.UID}, nil
	case err != nil:
		return Outcome{}, fmt.Errorf("get claim %q: %w", s.Namespace+"/"+s.Name, err)
	case claim.UID != s.UID || claim.ResourceVersion != s.ResourceVersion:
		return Outcome{Stale: true}, nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerPopulation })
	if s.Present {
		finalizers = append(finalizers, v1alpha1.FinalizerPopulation)
	}
	return a.patch(ctx, &corev1.PersistentVolumeClaim{}, target{s.Namespace, s.Name, s.UID, s.ResourceVersion},
		document{"metadata": document{"finalizers": finalizers}})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// outcome judges the answer to a write with preconditions.
func outcome(o client.Object, err error, verb string) (Outcome, error) {
	switch {
	case err == nil:
		return Outcome{Objects: []client.Object{o}}, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return Outcome{Stale: true}, nil
	}
	return refusedOr(err, verb, o)
}
