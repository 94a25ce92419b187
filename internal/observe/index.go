package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Indexes of the manager's cache. All but the first two cover only claims that
// are still to be bound, so that settled claims cost next to nothing.
const (
	// IndexClaimUID finds a claim by its own UID.
	IndexClaimUID = "metadata.uid"
	// IndexTemporary finds primes, workers and volumes by the UID of the claim
	// that their label names.
	IndexTemporary = "sluice.claimUID"
	// IndexSource finds unbound claims by what SourceRef.String says.
	IndexSource = "sluice.source"
	// IndexSourceKind finds unbound claims by the kind of their source.
	IndexSourceKind = "sluice.sourceKind"
	// IndexClass finds unbound claims with a source by their storage class.
	IndexClass = "sluice.class"
	// IndexClaimRef finds volumes by the namespace/name in their claimRef.
	IndexClaimRef = "sluice.claimRef"
	// IndexPrimeOf finds volumes whose claimRef names a prime, by the UID of
	// the claim that the prime was made for.
	IndexPrimeOf = "sluice.primeOf"
	// IndexConsumed finds Pods by the names of the claims they use.
	IndexConsumed = "sluice.consumed"
)

// SourceRef names the source of a claim.
type SourceRef struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// String is the form that IndexSource uses.
func (r SourceRef) String() string { return r.Kind.String() + "/" + r.Namespace + "/" + r.Name }

// SourceOf returns what a claim's dataSourceRef names, and false for claims
// without one and for the two kinds that the cluster serves without populators.
func SourceOf(claim *corev1.PersistentVolumeClaim) (SourceRef, bool) {
	ref := claim.Spec.DataSourceRef
	if ref == nil || ref.APIGroup == nil || *ref.APIGroup == "" || *ref.APIGroup == "snapshot.storage.k8s.io" {
		return SourceRef{}, false
	}
	out := SourceRef{
		Kind:      schema.GroupKind{Group: *ref.APIGroup, Kind: ref.Kind},
		Namespace: claim.Namespace,
		Name:      ref.Name,
	}
	switch annotated := claim.Annotations[v1alpha1.AnnotationSourceNamespace]; {
	case ref.Namespace != nil && *ref.Namespace != "":
		out.Namespace = *ref.Namespace
	case annotated != "":
		out.Namespace = annotated
	}
	return out, true
}

// AddIndexes adds the indexes of the manager's cache. It must be called once,
// before the cache starts.
func AddIndexes(ctx context.Context, to client.FieldIndexer) error {
	for _, x := range []struct {
		object client.Object
		name   string
		values client.IndexerFunc
	}{
		{&corev1.PersistentVolumeClaim{}, IndexClaimUID, func(o client.Object) []string { return []string{string(o.GetUID())} }},
		{&corev1.PersistentVolumeClaim{}, IndexTemporary, temporaryOf},
		{&corev1.PersistentVolumeClaim{}, IndexSource, unbound(func(_ *corev1.PersistentVolumeClaim, r SourceRef) string { return r.String() })},
		{&corev1.PersistentVolumeClaim{}, IndexSourceKind, unbound(func(_ *corev1.PersistentVolumeClaim, r SourceRef) string { return r.Kind.String() })},
		{&corev1.PersistentVolumeClaim{}, IndexClass, unbound(classOf)},
		{&corev1.Pod{}, IndexTemporary, temporaryOf},
		{&corev1.PersistentVolume{}, IndexTemporary, temporaryOf},
		{&corev1.PersistentVolume{}, IndexClaimRef, claimRefOf},
		{&corev1.PersistentVolume{}, IndexPrimeOf, primeOf},
	} {
		if err := to.IndexField(ctx, x.object, x.name, x.values); err != nil {
			return fmt.Errorf("index %T by %s: %w", x.object, x.name, err)
		}
	}
	return nil
}

// AddPendingIndexes adds the index of the cache of Pods that have no node.
func AddPendingIndexes(ctx context.Context, to client.FieldIndexer) error {
	if err := to.IndexField(ctx, &corev1.Pod{}, IndexConsumed, consumedBy); err != nil {
		return fmt.Errorf("index Pods by %s: %w", IndexConsumed, err)
	}
	return nil
}

func temporaryOf(o client.Object) []string {
	if uid := o.GetLabels()[v1alpha1.LabelClaimUID]; uid != "" {
		return []string{uid}
	}
	return nil
}

func unbound(value func(*corev1.PersistentVolumeClaim, SourceRef) string) client.IndexerFunc {
	return func(o client.Object) []string {
		claim, ok := o.(*corev1.PersistentVolumeClaim)
		if !ok || Settled(claim) {
			return nil
		}
		ref, ok := SourceOf(claim)
		if !ok {
			return nil
		}
		if v := value(claim, ref); v != "" {
			return []string{v}
		}
		return nil
	}
}

func classOf(claim *corev1.PersistentVolumeClaim, _ SourceRef) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func claimRefOf(o client.Object) []string {
	volume, ok := o.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return nil
	}
	return []string{volume.Spec.ClaimRef.Namespace + "/" + volume.Spec.ClaimRef.Name}
}

func primeOf(o client.Object) []string {
	volume, ok := o.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return nil
	}
	if uid := ClaimUIDFromName(volume.Spec.ClaimRef.Name); uid != "" {
		return []string{string(uid)}
	}
	return nil
}

func consumedBy(o client.Object) []string {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var names []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}
