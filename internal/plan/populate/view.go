package populate

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// view is an observation with everything in it judged: what is ours, of which
// attempt, and what merely stands in the way.
type view struct {
	Observed

	// claim is the claim of ClaimUID while it lives; nil when it is gone, being
	// deleted, or replaced by another of its name.
	claim *corev1.PersistentVolumeClaim
	// pop is the Population of this claim UID, if it is of our making and not
	// being deleted; n is its attempt.
	pop *v1alpha1.Population
	n   int32
	// prime and worker are those of attempt n, own ones only.
	prime  *corev1.PersistentVolumeClaim
	worker *corev1.Pod
	// scout is the scout of prime n, while it may be of use.
	scout *corev1.Pod
	// otherPrimes and otherWorkers are ours to delete: of other attempts, of a
	// Population that is no more, bereft of their owner, or in another namespace.
	otherPrimes  []*corev1.PersistentVolumeClaim
	otherWorkers []*corev1.Pod
	// highest is the highest attempt that anything of this claim speaks of.
	highest int32
	// namespace is where the temporaries of attempt n live, or those of the first
	// one will; place is where those of the next attempt belong.
	namespace, place string
}

func look(o Observed) *view {
	v := &view{Observed: o}
	if o.Claim != nil && o.Claim.UID == o.ClaimUID && o.Claim.DeletionTimestamp == nil {
		v.claim = o.Claim
	}
	if p := o.Population; p != nil && p.DeletionTimestamp == nil && p.Spec.ClaimUID == o.ClaimUID && hasOwner(p, o.ClaimUID) {
		v.pop, v.n = p, p.Spec.Attempt
	}
	v.place = place(&o)
	if v.namespace = v.place; v.n > 0 {
		v.namespace = cmp.Or(v.pop.Spec.Namespace, o.Namespace)
	}
	v.highest = v.n
	for i := range v.Primes {
		p := &v.Primes[i]
		k, n := v.kin(p, v1alpha1.RolePrime)
		v.highest = max(v.highest, n)
		switch {
		case k == own && n == v.n:
			v.prime = p
		case k != foreign:
			v.otherPrimes = append(v.otherPrimes, p)
		}
	}
	for i := range v.Workers {
		w := &v.Workers[i]
		role := v1alpha1.RoleWorker
		if w.Labels[v1alpha1.LabelRole] == v1alpha1.RoleScout {
			role = v1alpha1.RoleScout
		}
		k, n := v.kin(w, role)
		v.highest = max(v.highest, n)
		switch {
		case k == own && n == v.n && role == v1alpha1.RoleWorker:
			v.worker = w
		case k == own && n == v.n && v.prime != nil && !v.recorded() && v.failed() == nil:
			v.scout = w
		case k != foreign:
			v.otherWorkers = append(v.otherWorkers, w)
		}
	}
	return v
}

// name is the name of the temporaries of attempt n.
func (v *view) name() string { return TemporaryName(v.ClaimUID, v.n) }

// taken says whether something that is not ours stands under the name of an
// attempt, and what kind of thing.
func (v *view) taken(attempt int32) (kind string, ok bool) {
	name := TemporaryName(v.ClaimUID, attempt)
	stands := func(o metav1.Object, role string) bool {
		k, _ := kin(o, v.ClaimUID, role, "", v.n)
		return k == foreign && o.GetNamespace() == v.namespace && o.GetName() == name
	}
	for i := range v.Primes {
		if stands(&v.Primes[i], v1alpha1.RolePrime) {
			return "PersistentVolumeClaim", true
		}
	}
	for i := range v.Workers {
		if stands(&v.Workers[i], v1alpha1.RoleWorker) {
			return "Pod", true
		}
	}
	return "", false
}

// status is the Population's status, the zero one where there is none.
func (v *view) status() v1alpha1.PopulationStatus {
	if v.pop == nil {
		return v1alpha1.PopulationStatus{}
	}
	return v.pop.Status
}

// recorded says that a worker of attempt n may exist or have existed.
func (v *view) recorded() bool {
	p := v.status().Prime
	return p != nil && v.n > 0 && p.Name == v.name()
}

// failed is the failed result of attempt n, if it has one.
func (v *view) failed() *v1alpha1.Result {
	if r := v.status().Result; r != nil && r.Attempt == v.n && !r.Succeeded {
		return r
	}
	return nil
}

func (v *view) volume(name string) *corev1.PersistentVolume {
	for i := range v.Volumes {
		if v.Volumes[i].Name == name && name != "" {
			return &v.Volumes[i]
		}
	}
	return nil
}

// heldBy is the volume whose claimRef holds this very claim or prime.
func (v *view) heldBy(uid types.UID) *corev1.PersistentVolume {
	for i := range v.Volumes {
		if ref := v.Volumes[i].Spec.ClaimRef; ref != nil && ref.UID == uid {
			return &v.Volumes[i]
		}
	}
	return nil
}

// heldByName are the volumes whose claimRef names the prime of an attempt, that
// prime itself or an earlier one of its name.
func (v *view) heldByName(attempt int32) []*corev1.PersistentVolume {
	var out []*corev1.PersistentVolume
	name := TemporaryName(v.ClaimUID, attempt)
	for i := range v.Volumes {
		if ref := v.Volumes[i].Spec.ClaimRef; ref != nil && ref.Name == name && ref.Namespace == v.namespace {
			out = append(out, &v.Volumes[i])
		}
	}
	return out
}

// waitsForConsumer says that the claim's class binds when a consumer has a node.
func (v *view) waitsForConsumer() bool {
	return v.Class != nil && ptr.Deref(v.Class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

// immediately says that the claim asks to be filled before it has a consumer.
func (v *view) immediately() bool {
	return v.claim != nil && v.claim.Annotations[v1alpha1.AnnotationPopulate] == v1alpha1.PopulateImmediately
}

// left is how much of a time since a moment is left, 0 when it is over. Clocks
// are set, and other programs have other clocks: a moment so far ahead that no
// clock is merely fast is taken for long past, so that nothing is held up for
// ever.
func (v *view) left(d time.Duration, since time.Time) time.Duration {
	wait := since.Add(d).Sub(v.Now)
	if wait < 0 || wait > 2*d+clockSkew {
		return 0
	}
	return wait
}

// filledFor says that a volume was handed over to this claim, filled: its own
// labels say so.
func (v *view) filledFor(pv *corev1.PersistentVolume) bool {
	return pv != nil && pv.Labels[v1alpha1.LabelRole] == RoleFilled && pv.Labels[v1alpha1.LabelClaimUID] == string(v.ClaimUID)
}
