package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Deepen makes the same observation in more depth.
func (ob *Observer) Deepen(ctx context.Context, o populate.Observed, need populate.Need) (populate.Observed, error) {
	var err error
	if need&populate.NeedLive != 0 {
		if o, err = ob.live(ctx, o); err != nil {
			return o, err
		}
	}
	if need&populate.NeedRender != 0 {
		if o, err = ob.render(ctx, o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// live reads from the API server, by name, everything that is in the
// observation or could be. All reads go out at once: this is on the way
// between a worker's success and the claim's binding.
func (ob *Observer) live(ctx context.Context, o populate.Observed) (populate.Observed, error) {
	if o.Name == "" {
		claim, err := ob.claimByUID(ctx, &o)
		if err != nil {
			return o, err
		}
		if claim.Name != "" {
			o.Namespace, o.Name = claim.Namespace, claim.Name
		}
	}
	var reads reads
	claim, population := &one[*corev1.PersistentVolumeClaim]{}, &one[*v1alpha1.Population]{}
	if o.Name != "" {
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		claim = later(ctx, &reads, ob.Live, key, &corev1.PersistentVolumeClaim{})
		population = later(ctx, &reads, ob.Live, key, &v1alpha1.Population{})
	}

	temporaries := map[types.NamespacedName]bool{}
	var primes []*one[*corev1.PersistentVolumeClaim]
	var workers []*one[*corev1.Pod]
	askTemporaries := func() {
		for _, k := range temporaryKeys(&o) {
			if !temporaries[k] {
				temporaries[k] = true
				primes = append(primes, later(ctx, &reads, ob.Live, k, &corev1.PersistentVolumeClaim{}))
				workers = append(workers, later(ctx, &reads, ob.Live, k, &corev1.Pod{}))
			}
		}
	}
	askTemporaries()
	asked := map[string]bool{}
	var volumes []*one[*corev1.PersistentVolume]
	ask := func(names []string) {
		for _, name := range names {
			if !asked[name] {
				asked[name] = true
				volumes = append(volumes, later(ctx, &reads, ob.Live, types.NamespacedName{Name: name}, &corev1.PersistentVolume{}))
			}
		}
	}
	for i := range o.Volumes {
		ask([]string{o.Volumes[i].Name})
	}
	if err := reads.wait(); err != nil {
		return o, err
	}

	o.Claim, o.Population = claim.object, population.object
	if lostTrack(&o) {
		if err := ob.search(ctx, &o); err != nil {
			return o, err
		}
	}
	// The live record may be of a later attempt than the cached one.
	askTemporaries()
	if err := reads.wait(); err != nil {
		return o, err
	}
	o.Primes, o.Workers = found[corev1.PersistentVolumeClaim](primes), found[corev1.Pod](workers)
	// The live objects may name volumes that the caches did not.
	ask(volumeNames(&o))
	if err := reads.wait(); err != nil {
		return o, err
	}
	o.Volumes = found[corev1.PersistentVolume](volumes)
	o.Live = true
	o.Now = ob.Now()
	return o, nil
}

// claimByUID looks for a claim of which only the UID is known, as for a volume
// that a prime left behind. That no claim has the UID must be certain before
// anything is deleted for it, so this is a live list: of the namespace at hand,
// or of all where temporaries may be those of a claim of another one.
func (ob *Observer) claimByUID(ctx context.Context, o *populate.Observed) (types.NamespacedName, error) {
	var in []client.ListOption
	if !slices.ContainsFunc(append(pointers(o.Primes), pointers(o.Workers)...), ownerless) {
		in = append(in, client.InNamespace(o.Namespace))
	}
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := ob.Live.List(ctx, claims, in...); err != nil {
		return types.NamespacedName{}, fmt.Errorf("look for claim with UID %q: %w", o.ClaimUID, err)
	}
	for i := range claims.Items {
		if claims.Items[i].UID == o.ClaimUID {
			return client.ObjectKeyFromObject(&claims.Items[i]), nil
		}
	}
	return types.NamespacedName{}, nil
}

// ownerless says that an object has no controller, as temporaries that live in
// another namespace than their claim.
func ownerless(o client.Object) bool { return metav1.GetControllerOfNoCopy(o) == nil }

// lostTrack says that the claim is held for temporaries of another namespace and
// that no record says which one that is.
func lostTrack(o *populate.Observed) bool {
	return o.Claim != nil && o.Claim.UID == o.ClaimUID && slices.Contains(o.Claim.Finalizers, v1alpha1.FinalizerPopulation) &&
		(o.Population == nil || o.Population.Spec.ClaimUID != o.ClaimUID)
}

// search looks for temporaries by label in all namespaces and adds their names
// to what is read next.
func (ob *Observer) search(ctx context.Context, o *populate.Observed) error {
	of := client.MatchingLabels{v1alpha1.LabelClaimUID: string(o.ClaimUID)}
	var primes corev1.PersistentVolumeClaimList
	if err := ob.Live.List(ctx, &primes, of); err != nil {
		return fmt.Errorf("look for primes of claim %q: %w", o.Namespace+"/"+o.Name, err)
	}
	var workers corev1.PodList
	if err := ob.Live.List(ctx, &workers, of); err != nil {
		return fmt.Errorf("look for workers of claim %q: %w", o.Namespace+"/"+o.Name, err)
	}
	o.Primes, o.Workers = primes.Items, workers.Items
	return nil
}

// render fetches the source whole and renders the worker from it, or takes the
// worker that a plugin computed from it.
func (ob *Observer) render(ctx context.Context, o populate.Observed) (populate.Observed, error) {
	r := populate.Rendered{}
	if o.Population != nil {
		r.Attempt = o.Population.Spec.Attempt
	}
	o.Rendered = &r
	if o.Claim == nil || o.Populator == nil {
		r.Reason, r.Message = v1alpha1.ReasonTemplateFailed, "The claim or its Populator is gone"
		return o, nil
	}
	f, err := ob.fetch(ctx, o.Populator, o.Claim)
	if err != nil {
		return o, err
	}
	if o.Source = f.source; f.object == nil {
		r.Reason, r.Message = f.reason, f.message
		return o, nil
	}
	if o.Populator.Spec.Plugin != nil {
		o.Rendered, err = ob.given(&o, r.Attempt)
		return o, err
	}
	o.Rendered = ob.Templates.Render(o.Populator, f.object, o.Claim, primeVolume(&o), r.Attempt)
	return o, nil
}

// primeVolume is the volume of the running attempt's prime, if it has one.
func primeVolume(o *populate.Observed) *corev1.PersistentVolume {
	if o.Population == nil {
		return nil
	}
	name := populate.TemporaryName(o.ClaimUID, o.Population.Spec.Attempt)
	for i := range o.Primes {
		if o.Primes[i].Name != name {
			continue
		}
		for j := range o.Volumes {
			if o.Volumes[j].Name == o.Primes[i].Spec.VolumeName {
				return &o.Volumes[j]
			}
		}
	}
	return nil
}

// temporaryKeys are the keys of the temporaries that were seen, and of the
// running attempt's where they live. An attempt's prime and its worker bear the
// same name.
func temporaryKeys(o *populate.Observed) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, seen := range append(pointers(o.Primes), pointers(o.Workers)...) {
		keys = append(keys, client.ObjectKeyFromObject(seen))
	}
	if o.Population != nil && o.Population.Spec.ClaimUID == o.ClaimUID && o.Population.Spec.Attempt > 0 {
		name := populate.TemporaryName(o.ClaimUID, o.Population.Spec.Attempt)
		keys = append(keys, types.NamespacedName{Namespace: attemptNamespace(o), Name: name})
	}
	return keys
}

// reads are reads that run at the same time.
type reads struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// wait waits for all reads so far.
func (r *reads) wait() error {
	r.wg.Wait()
	return errors.Join(r.errs...)
}

// one is the result of one read, once its reads have been waited for; object
// is nil if there is none.
type one[T client.Object] struct{ object T }

func later[T client.Object](ctx context.Context, r *reads, from client.Reader, key types.NamespacedName, into T) *one[T] {
	out := &one[T]{}
	r.wg.Go(func() {
		object, err := get(ctx, from, key, into)
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs = append(r.errs, err)
			return
		}
		out.object = object
	})
	return out
}

// found are the objects of the reads that found one.
func found[V any, T interface {
	*V
	client.Object
}](from []*one[T]) []V {
	var out []V
	for _, f := range from {
		if f.object != nil {
			out = append(out, *f.object)
		}
	}
	return out
}

func pointers[V any, T interface {
	*V
	client.Object
}](values []V) []client.Object {
	out := make([]client.Object, 0, len(values))
	for i := range values {
		out = append(out, T(&values[i]))
	}
	return out
}
