package release

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Facts are what a release is decided from.
type Facts struct {
	Now        time.Time
	Claim      *corev1.PersistentVolumeClaim
	Population *v1alpha1.Population
	// Lease is what the leading manager renews; nil if there is none.
	Lease *coordinationv1.Lease
	// Labelled are all objects that bear the claim's UID as label.
	Labelled []client.Object
	// Volumes are those that primes among them are bound to, as far as they
	// may be read.
	Volumes []corev1.PersistentVolume
	// Missing are the rights that would have told more.
	Missing []string
	// LeaseUnread says that the right to read the Lease is among them.
	LeaseUnread bool
}

// Plan is what a release does.
type Plan struct {
	Claim *corev1.PersistentVolumeClaim
	// Finalizer says that the claim has ours, which goes last.
	Finalizer bool
	// Delete are the temporaries that go, workers first.
	Delete []client.Object
	// Await are the temporaries that have to be gone before the finalizer is:
	// those of Delete, and those that are going already.
	Await []client.Object
	// Primes are those that wait for their plugin and shall not any more: the
	// plugin's finalizer goes once they are deleted.
	Primes []*corev1.PersistentVolumeClaim
	// Left are primes that stay, since somebody's volume would go with them.
	Left []client.Object
	// Notes tell what is left alone, and what stays.
	Notes []string
	// Objection is why the release should not be done; --force overrides it.
	Objection string
}

// Empty says that there is nothing to do.
func (p Plan) Empty() bool { return !p.Finalizer && len(p.Delete) == 0 && len(p.Primes) == 0 }

// Make decides what a release does. It reads nothing.
func Make(f Facts) Plan {
	p := Plan{Claim: f.Claim, Finalizer: slices.Contains(f.Claim.Finalizers, v1alpha1.FinalizerPopulation)}
	for _, o := range f.Labelled {
		switch {
		case !temporary(o, f.Claim.UID):
			p.Notes = append(p.Notes, fmt.Sprintf("%s is left alone: it bears the claim's label, but not the name of a temporary", describe(o)))
		case o.GetDeletionTimestamp() != nil:
			p.Await = append(p.Await, o)
			p.Notes = append(p.Notes, fmt.Sprintf("%s is being deleted already", describe(o)))
		case takesAlong(f, o):
			p.Left = append(p.Left, o)
			p.Notes = append(p.Notes, fmt.Sprintf("%s is left alone: its volume, which was there before it, would be deleted with it; set the volume's reclaim policy to Retain and repeat", describe(o)))
		default:
			p.Delete = append(p.Delete, o)
		}
		if prime, ok := o.(*corev1.PersistentVolumeClaim); ok && temporary(o, f.Claim.UID) {
			p.unhold(prime)
		}
	}
	if f.Claim.DeletionTimestamp != nil { // a prime that has outlived its claim is released by its own name
		p.unhold(f.Claim)
	}
	slices.SortStableFunc(p.Delete, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.GetName(), b.GetName()))
	})
	p.Await = append(p.Await, p.Delete...)
	for i := range f.Volumes {
		if note := fate(f, &f.Volumes[i]); note != "" {
			p.Notes = append(p.Notes, note)
		}
	}
	for _, m := range f.Missing {
		p.Notes = append(p.Notes, "You lack the right to "+m+", so there may be more than is seen here")
	}
	if f.Claim.DeletionTimestamp == nil && f.Claim.Spec.VolumeName == "" && f.Claim.Spec.DataSourceRef != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("A manager that runs fills the claim anew: delete the claim, or label its namespace %s=true", v1alpha1.LabelIgnore))
	}
	if !p.Empty() {
		p.Objection = objection(f)
	}
	return p
}

// unhold has a prime wait for its plugin no more.
func (p *Plan) unhold(prime *corev1.PersistentVolumeClaim) {
	if !slices.Contains(prime.Finalizers, v1alpha1.FinalizerPlugin) {
		return
	}
	p.Primes = append(p.Primes, prime)
	p.Notes = append(p.Notes, fmt.Sprintf("The plugin of Populator %q is not told to end: see first that it has stopped writing to volume %s",
		prime.Annotations[v1alpha1.AnnotationPopulator], cmp.Or(prime.Spec.VolumeName, "(none yet)")))
}

// temporary says that an object has label and name of a temporary of the claim
// with this UID.
func temporary(o client.Object, claim types.UID) bool {
	name := populate.TemporaryName
	switch o.GetLabels()[v1alpha1.LabelRole] {
	case v1alpha1.RolePrime, v1alpha1.RoleWorker:
	case v1alpha1.RoleScout:
		name = populate.ScoutName
	default:
		return false
	}
	return o.GetLabels()[v1alpha1.LabelClaimUID] == string(claim) && o.GetUID() != claim &&
		o.GetName() == strings.TrimSuffix(name(claim, 0), "0")+o.GetLabels()[v1alpha1.LabelAttempt]
}

// takesAlong says that a volume of somebody's would be deleted with a prime that
// Kubernetes has matched with it.
func takesAlong(f Facts, o client.Object) bool {
	prime, ok := o.(*corev1.PersistentVolumeClaim)
	return ok && slices.ContainsFunc(f.Volumes, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && populate.Matched(prime, &pv)
	})
}

// somebodys says that a volume was there before the prime that it is bound to.
func somebodys(f Facts, pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(f.Labelled, func(o client.Object) bool {
		prime, ok := o.(*corev1.PersistentVolumeClaim)
		return ok && populate.Matched(prime, pv)
	})
}

// rank puts workers before what they use.
func rank(o client.Object) int {
	switch o.(type) {
	case *corev1.Pod:
		return 0
	case *corev1.ConfigMap:
		return 1
	}
	return 2
}

// fate says what becomes of the volume of a prime that goes.
func fate(f Facts, pv *corev1.PersistentVolume) string {
	ref := pv.Spec.ClaimRef
	switch {
	case ref == nil:
		return ""
	case ref.UID == f.Claim.UID:
		return fmt.Sprintf("Volume %s is the claim's own and stays", pv.Name)
	case somebodys(f, pv):
		return fmt.Sprintf("Volume %s was there before its prime and stays; once the prime is gone, remove spec.claimRef to make it available again", pv.Name)
	case pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return fmt.Sprintf("Volume %s stays, half filled: its reclaim policy is Retain", pv.Name)
	}
	return fmt.Sprintf("Volume %s, half filled, goes with its prime: its reclaim policy is %s", pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
}

// objection is why a manager should be left to do it.
func objection(f Facts) string {
	var work string
	switch pop := f.Population; {
	case f.Claim.DeletionTimestamp != nil:
		work = "is removing what belongs to the deleted claim"
	case pop == nil || pop.Spec.ClaimUID != f.Claim.UID:
		return ""
	case pop.Status.Phase == v1alpha1.PhaseSucceeded, pop.Status.Phase == v1alpha1.PhaseFailed:
		return ""
	default:
		work = fmt.Sprintf("is at work on the claim (phase %s)", cmp.Or(pop.Status.Phase, v1alpha1.PhaseWaiting))
	}
	switch holder, alive := leader(f.Lease, f.Now); {
	case alive:
		return fmt.Sprintf("manager %q is alive and %s", holder, work)
	case f.LeaseUnread:
		return "you may not see whether a manager is alive; if one is, it " + work
	}
	return ""
}

// leader returns who holds the lease, and whether it was renewed in time.
func leader(l *coordinationv1.Lease, now time.Time) (holder string, alive bool) {
	if l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return "", false
	}
	until := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
	return *l.Spec.HolderIdentity, until.Add(clockSkew).After(now)
}

// clockSkew is how far the clock here may be ahead of the manager's.
const clockSkew = 10 * time.Second

// describe names an object as kubectl would.
func describe(o client.Object) string {
	kind := "object"
	switch o.(type) {
	case *corev1.Pod:
		kind = "pod"
	case *corev1.ConfigMap:
		kind = "configmap"
	case *corev1.PersistentVolumeClaim:
		kind = "persistentvolumeclaim"
	}
	return fmt.Sprintf("%s/%s in namespace %s", kind, o.GetName(), o.GetNamespace())
}
