package population

import (
	"context"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plugin"
	"github.com/sluice-dev/sluice/internal/registration"
)

// waker knows which claims a change concerns. Nothing waits for a clock that
// can be watched.
type waker struct {
	cache    client.Reader
	kinds    *kinds.Registry
	memory   *observe.Memory
	programs *observe.Programs
	plugins  *plugin.Connections
	log      logr.Logger
}

// claim maps a claim to itself, or a prime to the claim it was made for.
func (w *waker) claim(ctx context.Context, o client.Object) []observe.Key {
	if o.GetLabels()[v1alpha1.LabelClaimUID] != "" {
		return w.temporary(ctx, o)
	}
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	if uid := observe.ClaimUIDFromName(claim.Name); uid != "" {
		// A prime whose labels were taken away still stands under its name.
		return w.byUID(ctx, uid)
	}
	if _, ok := observe.SourceOf(claim); !ok {
		return nil
	}
	return []observe.Key{keyOf(claim)}
}

// temporary maps a prime or worker to the claim it was made for, also if that
// is gone: its UID is enough to be swept.
func (w *waker) temporary(ctx context.Context, o client.Object) []observe.Key {
	uid := types.UID(o.GetLabels()[v1alpha1.LabelClaimUID])
	if uid == "" {
		return nil
	}
	// Anybody who may edit the object can annotate it, so that a claim is gone is
	// not believed of one that is known.
	if keys := w.byUID(ctx, uid); len(keys) > 0 {
		return keys
	}
	if namespace, name, ok := strings.Cut(o.GetAnnotations()[v1alpha1.AnnotationClaim], "/"); ok {
		return []observe.Key{{Namespace: namespace, Name: name, UID: uid}}
	}
	return []observe.Key{{Namespace: o.GetNamespace(), UID: uid}}
}

// population maps a record to the claim that stands under its name, and to the
// one it speaks of, if that is another.
func (w *waker) population(ctx context.Context, o client.Object) []observe.Key {
	p, ok := o.(*v1alpha1.Population)
	if !ok {
		return nil
	}
	keys := []observe.Key{{Namespace: p.Namespace, Name: p.Name, UID: p.Spec.ClaimUID}}
	var claim corev1.PersistentVolumeClaim
	if err := w.cache.Get(ctx, client.ObjectKeyFromObject(p), &claim); err == nil && claim.UID != p.Spec.ClaimUID {
		keys = append(keys, keyOf(&claim))
	}
	return keys
}

// volume maps a volume to the claim in its claimRef, or to the claim whose
// prime is in its claimRef, or that its label names.
func (w *waker) volume(ctx context.Context, o client.Object) []observe.Key {
	v, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	var keys []observe.Key
	ref := v.Spec.ClaimRef
	if uid := types.UID(v.Labels[v1alpha1.LabelClaimUID]); uid != "" {
		keys = w.byUID(ctx, uid)
		held := ref != nil && observe.ClaimUIDFromName(ref.Name) == uid
		if len(keys) == 0 && !held && v.Labels[v1alpha1.LabelRole] == populate.RoleForeign {
			// It is to be given back although the claim is gone, and nothing
			// tells any more where that was.
			keys = append(keys, observe.Key{UID: uid})
		}
	}
	if ref == nil {
		return keys
	}
	if uid := observe.ClaimUIDFromName(ref.Name); uid != "" {
		if known := w.byUID(ctx, uid); len(known) > 0 {
			return append(keys, known...)
		}
		return append(keys, observe.Key{Namespace: ref.Namespace, UID: uid})
	}
	var claim corev1.PersistentVolumeClaim
	if err := w.cache.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &claim); err != nil {
		return keys
	}
	if _, ok := observe.SourceOf(&claim); ok {
		keys = append(keys, keyOf(&claim))
	}
	return keys
}

// class maps a storage class to the claims that wait for a volume of it.
func (w *waker) class(ctx context.Context, o client.Object) []observe.Key {
	return w.list(ctx, client.MatchingFields{observe.IndexClass: o.GetName()})
}

// driver maps a CSI driver to the claims that wait for a volume of it.
func (w *waker) driver(ctx context.Context, o client.Object) []observe.Key {
	var classes storagev1.StorageClassList
	if err := w.cache.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		w.log.Error(err, "list classes of a driver")
		return nil
	}
	var keys []observe.Key
	for i := range classes.Items {
		if classes.Items[i].Provisioner == o.GetName() {
			keys = append(keys, w.class(ctx, &classes.Items[i])...)
		}
	}
	return keys
}

// roomier maps a quota to the claims for which a write was refused in its
// namespace; it may be accepted now.
func (w *waker) roomier(ctx context.Context, o client.Object) []observe.Key {
	return w.refused(ctx, o.GetNamespace())
}

// namespace maps a namespace to the claims in it that wait: its labels decide
// what Pod Security refuses and whether Sluice keeps out of it.
func (w *waker) namespace(ctx context.Context, o client.Object) []observe.Key {
	keys := w.refused(ctx, o.GetName())
	var claims corev1.PersistentVolumeClaimList
	if err := w.cache.List(ctx, &claims, client.InNamespace(o.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		w.log.Error(err, "list claims to wake")
		return nil
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if _, ok := observe.SourceOf(claim); ok && !observe.Settled(claim) {
			keys = append(keys, keyOf(claim))
		}
	}
	return keys
}

// refused forgets the refusals in a namespace and returns the claims concerned:
// of it, or filled in it.
func (w *waker) refused(ctx context.Context, namespace string) []observe.Key {
	var keys []observe.Key
	for _, uid := range w.memory.RefusedClaims() {
		for _, k := range w.byUID(ctx, uid) {
			if (k.Namespace == namespace || w.filledIn(ctx, k) == namespace) && w.memory.Retry(uid) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// filledIn is the namespace that the temporaries of a claim live in; empty for
// the claim's own.
func (w *waker) filledIn(ctx context.Context, claim observe.Key) string {
	var p v1alpha1.Population
	if err := w.cache.Get(ctx, claim.Claim(), &p); err != nil || p.Spec.ClaimUID != claim.UID {
		return ""
	}
	return p.Spec.Namespace
}

// kindChanged maps a change of a source, or of a kind as a whole, to the
// claims that refer to it.
func (w *waker) kindChanged(ctx context.Context, c kinds.Change) []observe.Key {
	var keys []observe.Key
	switch {
	case c.Kind == registration.Kind, c.Kind == observe.ReferenceGrantKind:
		// Rare, and every unbound claim of a watched kind may be concerned.
		for _, kind := range w.kinds.Watched() {
			keys = append(keys, w.list(ctx, client.MatchingFields{observe.IndexSourceKind: kind.String()})...)
		}
		return keys
	case c.Name == "":
		keys = w.list(ctx, client.MatchingFields{observe.IndexSourceKind: c.Kind.String()})
	default:
		ref := observe.SourceRef{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
		keys = w.list(ctx, client.MatchingFields{observe.IndexSource: ref.String()})
	}
	for _, k := range keys {
		w.memory.Retry(k.UID) // whatever was refused, it may be rendered otherwise now
	}
	return keys
}

// populators keeps the watches of source kinds in step with the Populators, and
// maps a Populator to the unbound claims of its kind.
func (w *waker) populators() handler.TypedEventHandler[client.Object, observe.Key] {
	type queue = workqueue.TypedRateLimitingInterface[observe.Key]
	wake := func(ctx context.Context, o client.Object, q queue) {
		p, ok := o.(*v1alpha1.Populator)
		if !ok {
			return
		}
		kind := kindOf(p)
		if p.DeletionTimestamp == nil {
			w.kinds.Watch(kind, kinds.Metadata)
		}
		for _, k := range w.list(ctx, client.MatchingFields{observe.IndexSourceKind: kind.String()}) {
			w.memory.Retry(k.UID)
			q.Add(k)
		}
	}
	return handler.TypedFuncs[client.Object, observe.Key]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			p, ok := e.Object.(*v1alpha1.Populator)
			if !ok {
				return
			}
			w.programs.Forget(p.UID)
			w.plugins.Close(p.UID)
			if !w.served(ctx, kindOf(p), p.UID) {
				w.kinds.Forget(kindOf(p))
			}
			for _, k := range w.list(ctx, client.MatchingFields{observe.IndexSourceKind: kindOf(p).String()}) {
				q.Add(k)
			}
		},
	}
}

// served says whether a Populator other than the one with a UID names a kind.
func (w *waker) served(ctx context.Context, kind schema.GroupKind, but types.UID) bool {
	var list v1alpha1.PopulatorList
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		w.log.Error(err, "list populators")
		return true
	}
	for i := range list.Items {
		if list.Items[i].UID != but && kindOf(&list.Items[i]) == kind {
			return true
		}
	}
	return false
}

// byUID finds a claim by its UID.
func (w *waker) byUID(ctx context.Context, uid types.UID) []observe.Key {
	return w.list(ctx, client.MatchingFields{observe.IndexClaimUID: string(uid)})
}

func (w *waker) list(ctx context.Context, by client.MatchingFields) []observe.Key {
	var claims corev1.PersistentVolumeClaimList
	if err := w.cache.List(ctx, &claims, by, client.UnsafeDisableDeepCopy); err != nil {
		w.log.Error(err, "list claims to wake")
		return nil
	}
	keys := make([]observe.Key, 0, len(claims.Items))
	for i := range claims.Items {
		keys = append(keys, keyOf(&claims.Items[i]))
	}
	return keys
}

func keyOf(claim *corev1.PersistentVolumeClaim) observe.Key {
	return observe.Key{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

func kindOf(p *v1alpha1.Populator) schema.GroupKind {
	return schema.GroupKind{Group: p.Spec.SourceKind.Group, Kind: p.Spec.SourceKind.Kind}
}

// claimChanged tells updates of a claim that matter from the many that do not:
// Kubernetes keeps conditions on settled claims too.
func claimChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.PersistentVolumeClaim)
	if !ok {
		return true
	}
	after, ok := e.ObjectNew.(*corev1.PersistentVolumeClaim)
	if !ok {
		return true
	}
	a, b := *before, *after
	a.ResourceVersion, a.ManagedFields, a.Status.Conditions = "", nil, nil
	b.ResourceVersion, b.ManagedFields, b.Status.Conditions = "", nil, nil
	return !equality.Semantic.DeepEqual(a, b)
}

// quotaGrew says that a quota has more room than before.
func quotaGrew(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.ResourceQuota)
	if !ok {
		return false
	}
	after, ok := e.ObjectNew.(*corev1.ResourceQuota)
	if !ok {
		return false
	}
	for name, hard := range before.Status.Hard {
		now, limited := after.Status.Hard[name]
		used, usedNow := before.Status.Used[name], after.Status.Used[name]
		if !limited || now.Cmp(hard) > 0 || usedNow.Cmp(used) < 0 {
			return true
		}
	}
	return false
}

func labelsChanged(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}

func never[E any](E) bool { return false }
