package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Templates evaluates the templates of Populators. It is pure; see package
// template.
type Templates interface {
	// Validate returns the reason and message of the first validation that the
	// source breaks, and two empty strings if it breaks none.
	Validate(p *v1alpha1.Populator, source *unstructured.Unstructured, claim *corev1.PersistentVolumeClaim) (reason, message string)

	// Names returns the Secrets and ConfigMaps that the source names for its
	// worker; the reason and message say why that cannot be told.
	Names(p *v1alpha1.Populator, source *unstructured.Unstructured) (objects []populate.NamedObject, reason, message string)

	// Render renders the worker of one attempt for a source, a claim and, where
	// it is known, the volume to fill.
	Render(p *v1alpha1.Populator, source *unstructured.Unstructured, claim *corev1.PersistentVolumeClaim,
		volume *corev1.PersistentVolume, attempt int32) *populate.Rendered

	// Given renders a worker that the Populator's plugin computed, by the rules of
	// templates.
	Given(p *v1alpha1.Populator, w *v1alpha1.WorkerTemplate, claim *corev1.PersistentVolumeClaim,
		volume *corev1.PersistentVolume, attempt int32) *populate.Rendered
}

// Readings knows what running workers told of their progress.
type Readings interface {
	// Of returns the newest reading of a worker, by the UID of its Pod.
	Of(pod types.UID) (populate.Reading, bool)
}

// Config is what an Observer reads from.
type Config struct {
	// Cache is the manager's cache, with CacheByObject and AddIndexes.
	Cache client.Reader
	// Pending is the cache of Pods without a node, with PendingByObject and
	// AddPendingIndexes.
	Pending client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Kinds watches source kinds and registrations.
	Kinds *kinds.Registry
	// Problems are the Warning events about temporaries.
	Problems *Problems
	// Readings, if set, are what running workers told of their progress.
	Readings Readings
	// Memory is what was written and is not in the cache yet.
	Memory *Memory
	// Templates evaluates Populators.
	Templates Templates
	// System is the manager's own namespace.
	System string
	// Answers are what plugins answered for a claim; nil where none is called.
	Answers func(claim types.UID) []populate.Answer
	// Now is the clock.
	Now func() time.Time
}

// Observer makes observations.
type Observer struct{ Config }

// New returns an Observer.
func New(c Config) *Observer { return &Observer{c} }

// Observe makes an observation from caches. It says pending when something
// that an unbound claim depends on is still being loaded; whoever waits for it
// is told by the Registry.
func (ob *Observer) Observe(ctx context.Context, key Key) (o populate.Observed, pending bool, err error) {
	o = populate.Observed{
		Now:       ob.Now(),
		Namespace: key.Namespace,
		Name:      key.Name,
		ClaimUID:  key.UID,
		System:    ob.System,
		Refused:   ob.Memory.refusal(key.UID),
	}
	if ob.Answers != nil {
		o.Answers = ob.Answers(key.UID)
	}
	if err := ob.named(ctx, &o); err != nil {
		return o, false, err
	}
	if err := ob.temporaries(ctx, &o); err != nil {
		return o, false, err
	}
	if claim := claimByTemporaries(&o); o.Name == "" && claim.Name != "" {
		// Only temporaries remember the claim: what stands under its name?
		o.Namespace, o.Name = claim.Namespace, claim.Name
		if err := ob.named(ctx, &o); err != nil {
			return o, false, err
		}
	}
	if err := ob.volumes(ctx, &o); err != nil {
		return o, false, err
	}
	if o.Claim == nil || o.Claim.UID != key.UID || o.Claim.DeletionTimestamp != nil || Settled(o.Claim) {
		// Nothing about the source can matter any more, and it must not stand
		// in the way of deleting.
		return o, false, nil
	}
	return ob.origin(ctx, o)
}

// named adds what stands under the claim's name.
func (ob *Observer) named(ctx context.Context, o *populate.Observed) (err error) {
	if o.Name == "" {
		return nil
	}
	at := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	if o.Claim, err = cached(ctx, ob, o.ClaimUID, at, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	o.Population, err = cached(ctx, ob, o.ClaimUID, at, &v1alpha1.Population{})
	return err
}

// claimByTemporaries is the claim that the temporaries say they were made for:
// one of the observation's namespace, if any says so, else any; empty if none
// says it.
func claimByTemporaries(o *populate.Observed) types.NamespacedName {
	var claim types.NamespacedName
	for _, t := range append(pointers(o.Primes), pointers(o.Workers)...) {
		namespace, name, ok := strings.Cut(t.GetAnnotations()[v1alpha1.AnnotationClaim], "/")
		switch {
		case ok && namespace == o.Namespace:
			return types.NamespacedName{Namespace: namespace, Name: name}
		case ok && claim.Name == "":
			claim = types.NamespacedName{Namespace: namespace, Name: name}
		}
	}
	return claim
}

// origin adds what the claim is to be filled from, and who fills it.
func (ob *Observer) origin(ctx context.Context, o populate.Observed) (populate.Observed, bool, error) {
	ref, ok := SourceOf(o.Claim)
	if !ok {
		return o, false, nil
	}
	var err error
	if o.Populator, err = ob.populator(ctx, ref); err != nil {
		return o, false, err
	}
	var loading bool
	if o.RegisteredElsewhere, loading = ob.registeredElsewhere(ref); loading {
		return o, true, nil
	}
	if name := o.Claim.Spec.StorageClassName; name != nil && *name != "" {
		if o.Class, err = get(ctx, ob.Cache, types.NamespacedName{Name: *name}, &storagev1.StorageClass{}); err != nil {
			return o, false, err
		}
		if o.Class != nil {
			if o.Driver, err = get(ctx, ob.Cache, types.NamespacedName{Name: o.Class.Provisioner}, &storagev1.CSIDriver{}); err != nil {
				return o, false, err
			}
		}
	}
	for i := range o.Primes {
		if p, ok := ob.Problems.Of(o.Primes[i].UID); ok && p.At.After(o.PrimeProblem.At) {
			o.PrimeProblem = p
		}
	}
	for i := range o.Workers {
		if p, ok := ob.Problems.Of(o.Workers[i].UID); ok && p.At.After(o.WorkerProblem.At) {
			o.WorkerProblem = p
		}
		ob.reading(&o, o.Workers[i].UID)
	}
	if o.Consumers, err = ob.consumers(ctx, o.Claim); err != nil {
		return o, false, err
	}
	o.Source, loading, err = ob.source(ctx, o.Populator, ref, o.Claim)
	return o, loading, err
}

// reading adds what a worker told of its progress; of several the newest.
func (ob *Observer) reading(o *populate.Observed, pod types.UID) {
	if ob.Readings == nil {
		return
	}
	if r, ok := ob.Readings.Of(pod); ok && r.At.After(o.Reading.At) {
		o.Reading = r
	}
}

// temporaries adds primes and workers: those that carry the claim's UID, and
// whatever else stands under a name that an attempt would use.
func (ob *Observer) temporaries(ctx context.Context, o *populate.Observed) error {
	byUID := client.MatchingFields{IndexTemporary: string(o.ClaimUID)}
	var primes corev1.PersistentVolumeClaimList
	if err := ob.Cache.List(ctx, &primes, byUID, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list primes of claim %q: %w", o.Namespace+"/"+o.Name, err)
	}
	found := make([]client.Object, 0, 2)
	for i := range primes.Items {
		found = append(found, &primes.Items[i])
	}
	namespace := attemptNamespace(o)
	for _, name := range temporaryNames(o) {
		if hasName(found, namespace, name) {
			continue
		}
		p, err := get(ctx, ob.Cache, types.NamespacedName{Namespace: namespace, Name: name}, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		if p != nil {
			found = append(found, p)
		}
	}
	o.Primes = values[corev1.PersistentVolumeClaim](ob.Memory.merge(o.ClaimUID, found, func(w client.Object) bool {
		p, ok := w.(*corev1.PersistentVolumeClaim)
		return ok && ClaimUIDFromName(p.Name) == o.ClaimUID
	}))

	var workers corev1.PodList
	if err := ob.Cache.List(ctx, &workers, byUID, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list workers of claim %q: %w", o.Namespace+"/"+o.Name, err)
	}
	found = found[:0:0]
	for i := range workers.Items {
		found = append(found, &workers.Items[i])
	}
	o.Workers = values[corev1.Pod](ob.Memory.merge(o.ClaimUID, found, func(w client.Object) bool {
		_, ok := w.(*corev1.Pod)
		return ok
	}))
	return nil
}

// volumes adds the volumes that the claim or a prime names, or that name one
// of these.
func (ob *Observer) volumes(ctx context.Context, o *populate.Observed) error {
	var found []client.Object
	add := func(by client.MatchingFields) error {
		var list corev1.PersistentVolumeList
		if err := ob.Cache.List(ctx, &list, by, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list volumes of claim %q: %w", o.Namespace+"/"+o.Name, err)
		}
		for i := range list.Items {
			if !hasName(found, "", list.Items[i].Name) {
				found = append(found, &list.Items[i])
			}
		}
		return nil
	}
	if err := add(client.MatchingFields{IndexClaimRef: o.Namespace + "/" + o.Name}); err != nil {
		return err
	}
	if err := add(client.MatchingFields{IndexPrimeOf: string(o.ClaimUID)}); err != nil {
		return err
	}
	if err := add(client.MatchingFields{IndexTemporary: string(o.ClaimUID)}); err != nil {
		return err
	}
	for _, name := range volumeNames(o) {
		if hasName(found, "", name) {
			continue
		}
		v, err := get(ctx, ob.Cache, types.NamespacedName{Name: name}, &corev1.PersistentVolume{})
		if err != nil {
			return err
		}
		if v != nil {
			found = append(found, v)
		}
	}
	o.Volumes = values[corev1.PersistentVolume](ob.Memory.merge(o.ClaimUID, found, func(w client.Object) bool {
		_, ok := w.(*corev1.PersistentVolume)
		return ok
	}))
	return nil
}

// consumers returns the Pods that use a claim and have no node yet.
func (ob *Observer) consumers(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := ob.Pending.List(ctx, &pods, client.InNamespace(claim.Namespace),
		client.MatchingFields{IndexConsumed: claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list consumers of claim %q: %w", claim.Namespace+"/"+claim.Name, err)
	}
	// A cache lists in no order, and what is told must not change with it.
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods.Items, nil
}

// volumeNames are the names of volumes that the claim, its primes or its
// record name.
func volumeNames(o *populate.Observed) []string {
	var names []string
	if o.Claim != nil && o.Claim.Spec.VolumeName != "" {
		names = append(names, o.Claim.Spec.VolumeName)
	}
	for i := range o.Primes {
		if v := o.Primes[i].Spec.VolumeName; v != "" {
			names = append(names, v)
		}
	}
	if o.Population != nil && o.Population.Status.VolumeName != "" {
		names = append(names, o.Population.Status.VolumeName)
	}
	return names
}

// temporaryNames are the names that the running attempt and the next one use.
func temporaryNames(o *populate.Observed) []string {
	var attempt int32
	if o.Population != nil && o.Population.Spec.ClaimUID == o.ClaimUID {
		attempt = o.Population.Spec.Attempt
	}
	names := []string{populate.TemporaryName(o.ClaimUID, attempt+1)}
	if attempt > 0 {
		names = append(names, populate.TemporaryName(o.ClaimUID, attempt))
	}
	return names
}

// attemptNamespace is where the temporaries of the recorded attempt live.
func attemptNamespace(o *populate.Observed) string {
	if o.Population != nil && o.Population.Spec.ClaimUID == o.ClaimUID && o.Population.Spec.Namespace != "" {
		return o.Population.Spec.Namespace
	}
	return o.Namespace
}

func hasName(objects []client.Object, namespace, name string) bool {
	for _, o := range objects {
		if o.GetName() == name && o.GetNamespace() == namespace {
			return true
		}
	}
	return false
}

// cached reads one object from the cache, or as it was written if the cache is
// behind; nil if there is none.
func cached[T client.Object](ctx context.Context, ob *Observer, claim types.UID, key types.NamespacedName, into T) (T, error) {
	var none T
	found, err := get(ctx, ob.Cache, key, into)
	if err != nil {
		return none, err
	}
	into.SetNamespace(key.Namespace)
	into.SetName(key.Name)
	var seen client.Object
	if client.Object(found) != client.Object(none) {
		seen = found
	}
	out, _ := ob.Memory.latest(claim, into, seen).(T) // of the same kind, or nil
	return out, nil
}

// get reads one object; nil if there is none.
func get[T client.Object](ctx context.Context, from client.Reader, key types.NamespacedName, into T) (T, error) {
	err := from.Get(ctx, key, into)
	switch {
	case err == nil:
		return into, nil
	case apierrors.IsNotFound(err):
		var none T
		return none, nil
	}
	var none T
	return none, fmt.Errorf("get %T %q: %w", into, key, err)
}

// values copies the objects of a list that are of one type.
func values[T any](objects []client.Object) []T {
	var out []T
	for _, o := range objects {
		if v, ok := any(o).(*T); ok {
			out = append(out, *v)
		}
	}
	return out
}
