package populate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Temporaries live beside the claim, or in the namespace of the source, or in
// the manager's. Which one is decided with each attempt's number and recorded
// with it, so that nothing that is edited later can hide what was made.
//
// Elsewhere than beside the claim no owner reference can hold them, so a
// finalizer on the claim does: it is written before the first temporary and
// removed when the last one is seen gone.

// annProvisioner is how Kubernetes names a claim's provisioner on it. It is the
// first thing that Kubernetes writes to a claim that waits for a volume.
const annProvisioner = "volume.kubernetes.io/storage-provisioner"

// place is the namespace that the next attempt's temporaries belong into.
func place(o *Observed) string {
	if o.Populator == nil {
		return o.Namespace
	}
	elsewhere := o.Source.Namespace != "" && o.Source.Namespace != o.Namespace
	switch o.Populator.Spec.Placement {
	case v1alpha1.PlacementSystem:
		return o.System
	case v1alpha1.PlacementSource:
		if elsewhere {
			return o.Source.Namespace
		}
	case v1alpha1.PlacementAuto, "":
		// What a source names can be mounted in its own namespace only.
		if elsewhere && len(o.Source.Objects) > 0 {
			return o.Source.Namespace
		}
	case v1alpha1.PlacementClaim:
	}
	return o.Namespace
}

// where is the namespace that the worker to come will live in.
func (v *view) where() string {
	if v.failed() != nil {
		return v.place
	}
	return v.namespace
}

// elsewhere is a namespace as the record has it: empty for the claim's own.
func (v *view) elsewhere(namespace string) string {
	if namespace == v.Namespace {
		return ""
	}
	return namespace
}

// kin judges an object that stands for a prime or a worker, and returns the
// attempt that it belongs to; 0 for one of which nothing may be concluded.
//
// In the namespace of the attempt an own temporary bears the record's nonce
// and, beside the claim, the claim's owner reference. Labels can be written in
// any namespace by anybody who may write there: what stands in another one is
// never used and counts for nothing, but if it says itself that it was made for
// this claim it is what a lost record left, and goes.
func (v *view) kin(o metav1.Object, role string) (kinship, int32) {
	nonce := ""
	if v.pop != nil {
		nonce = v.pop.Spec.Nonce
	}
	k, n := kin(o, v.ClaimUID, role, nonce, v.n)
	beside := o.GetNamespace() == v.Namespace
	switch {
	case k == foreign:
	case !beside && !v.says(o):
		return foreign, 0
	case o.GetNamespace() != v.namespace:
		return stray, 0
	case k == own && beside && !hasOwner(o, v.ClaimUID):
		return stray, n
	}
	return k, n
}

// says that an object is annotated to be made for this very claim.
func (v *view) says(o metav1.Object) bool {
	return v.Name != "" && o.GetAnnotations()[v1alpha1.AnnotationClaim] == v.Namespace+"/"+v.Name
}

// owners are the owner references of a temporary: none reach across namespaces.
func (v *view) owners() []metav1.OwnerReference {
	if v.namespace != v.Namespace {
		return nil
	}
	return ownedBy(v.claim)
}

// some says whether any temporary that is ours to delete is like that.
func (v *view) some(like func(metav1.Object) bool) bool {
	return slices.ContainsFunc(v.primes(), func(p *corev1.PersistentVolumeClaim) bool { return like(p) }) ||
		slices.ContainsFunc(v.workers(), func(w *corev1.Pod) bool { return like(w) })
}

// expected says that a temporary is where one of the recorded attempt, or of
// one before it, may be. Others are deleted and not waited for: anybody could
// keep claims waiting with forged ones.
func (v *view) expected(o metav1.Object) bool {
	return o.GetNamespace() == v.namespace || o.GetNamespace() == v.Namespace
}

// remains says that a temporary of an attempt is still to be seen.
func (v *view) remains() bool { return v.some(v.expected) }

// misplaced says that the worker to come may not live where its prime does: the
// namespace is that of a source no more, or not of the one whose Secrets and
// ConfigMaps it is to mount.
func (v *view) misplaced() bool {
	if v.namespace == v.place || v.Source.Namespace == "" || v.namespace == v.Source.Namespace {
		return false
	}
	stranger := v.namespace != v.Namespace && v.namespace != v.System
	return stranger || (v.place == v.Source.Namespace && len(v.Source.Objects) > 0)
}

// readsFrom is the namespace of the source that the recorded worker was made
// for.
func (v *view) readsFrom() string {
	if s := v.status().Source; s != nil {
		return s.Namespace
	}
	return ""
}

// held says that the claim bears our finalizer.
func (v *view) held() bool {
	return !v.claimGone() && slices.Contains(v.Claim.Finalizers, v1alpha1.FinalizerPopulation)
}

// hold puts the finalizer on the claim before anything is made elsewhere, on a
// live observation. Kubernetes writes to the claim at about the same time, and
// complains on it if it meets another version of it than it knew: its write
// comes first.
func (v *view) hold() (Decision, bool) {
	switch {
	case v.namespace == v.Namespace, v.held():
		return Decision{}, false
	case !v.Live:
		return Decision{Need: NeedLive, Why: WhyHold}, true
	case v.claim.Annotations[annProvisioner] == "" && (!v.waitsForConsumer() || v.claim.Annotations[annSelectedNode] != ""):
		if wait := v.left(lasting, v.claim.CreationTimestamp.Time); wait > 0 {
			return Decision{RequeueAfter: wait, Why: WhyHold}, true
		}
		return v.wait(WhyHold, &obstacle{reason: v1alpha1.ReasonProvisioning, message: fmt.Sprintf(
			"Kubernetes has yet to take up the claim and name its provisioner, %q", v.Class.Provisioner)}), true
	}
	return Decision{Why: WhyHold, Step: v.setFinalizer(true)}, true
}

// letGo removes the finalizer once every temporary is seen gone, on a live
// observation. One that has been going for long is gone as far as we can help
// it: its node may be dead, and the claim must not hang on that. For how long a
// prime waits for its plugin is settled elsewhere.
func (v *view) letGo() (Decision, bool) {
	left := func(o metav1.Object) bool {
		going := o.GetDeletionTimestamp()
		p, prime := o.(*corev1.PersistentVolumeClaim)
		return (v.pop == nil || v.expected(o)) && (going == nil || v.Now.Sub(going.Time) < terminatingPatience || prime && awaitsPlugin(p))
	}
	switch {
	case !v.held():
		return Decision{}, false
	case v.some(left):
		return Decision{RequeueAfter: recheck, Why: WhyAwaitGone}, true
	case !v.Live:
		return Decision{Need: NeedLive, Why: WhyLetGo}, true
	}
	return Decision{Why: WhyLetGo, Step: v.setFinalizer(false)}, true
}

func (v *view) setFinalizer(present bool) Step {
	return SetFinalizer{
		Namespace: v.Namespace, Name: v.Name, UID: v.Claim.UID, ResourceVersion: v.Claim.ResourceVersion, Present: present,
	}
}
