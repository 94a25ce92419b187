package populate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A prime can be matched with somebody's Available volume before a provisioner
// makes one for it. Such a volume is given back as it was, in separate writes:
//
//	Bound to the prime, policy P    → policy Retain, labels say whose fault and P
//	Released, the prime is gone     → claimRef cleared
//	Available, or bound to another  → policy P, labels removed
//
// A volume that another claim had meanwhile and let go stays as it is: to
// restore its policy then would be to destroy it.

// protect keeps a foreign volume from being reclaimed when our prime goes.
func (v *view) protect(pv *corev1.PersistentVolume) Decision {
	before := pv.Labels[LabelReclaimPolicy]
	if before == "" {
		before = string(pv.Spec.PersistentVolumeReclaimPolicy)
	}
	return Decision{Why: WhyGiveBack, Step: SetReclaimPolicy{
		Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
		Policy: corev1.PersistentVolumeReclaimRetain,
		Labels: map[string]string{
			v1alpha1.LabelClaimUID: string(v.ClaimUID),
			v1alpha1.LabelRole:     RoleForeign,
			LabelReclaimPolicy:     before,
		},
	}}
}

// protected says that a foreign volume outlives the prime it is bound to, and
// that it is this claim's to give back.
func (v *view) protected(pv *corev1.PersistentVolume) bool {
	return pv.Labels[v1alpha1.LabelClaimUID] == string(v.ClaimUID) && pv.Labels[v1alpha1.LabelRole] == RoleForeign && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// lent says that a volume is somebody's that this claim has yet to give back.
func (v *view) lent(pv corev1.PersistentVolume) bool {
	return pv.Labels[v1alpha1.LabelRole] == RoleForeign && pv.Labels[v1alpha1.LabelClaimUID] == string(v.ClaimUID) && pv.DeletionTimestamp == nil
}

// owed says of a volume that is lent that it may yet be given back: not one that
// another claim had meanwhile and let go.
func (v *view) owed(pv corev1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	theirs := ref != nil && !isTemporaryName(ref.Name)
	return v.lent(pv) && (!theirs || pv.Status.Phase != corev1.VolumeReleased)
}

// giveBack is the rule of volumes labelled foreign whose prime is gone.
func giveBack(v *view) (Decision, bool) {
	for i := range v.Volumes {
		pv := &v.Volumes[i]
		if !v.lent(*pv) {
			continue
		}
		d, ok := v.giveBackOne(pv)
		if !ok {
			continue
		}
		if !v.Live {
			d = Decision{Need: NeedLive, Why: WhyGiveBack}
		}
		return d, true
	}
	return Decision{}, false
}

func (v *view) giveBackOne(pv *corev1.PersistentVolume) (Decision, bool) {
	// While it is given back it may be matched with a prime of another claim.
	// Released, whichever prime it was is gone.
	ref := pv.Spec.ClaimRef
	ours := ref != nil && isTemporaryName(ref.Name)
	switch {
	case ours && pv.Status.Phase == corev1.VolumeReleased:
		return Decision{Why: WhyGiveBack, Step: ReleaseForeign{Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}}, true
	case !ours && (pv.Status.Phase == corev1.VolumeAvailable || pv.Status.Phase == corev1.VolumeBound):
		policy := corev1.PersistentVolumeReclaimPolicy(pv.Labels[LabelReclaimPolicy])
		if policy == "" {
			policy = pv.Spec.PersistentVolumeReclaimPolicy
		}
		return Decision{Why: WhyGiveBack, Step: SetReclaimPolicy{
			Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Policy: policy,
			Labels: map[string]string{v1alpha1.LabelClaimUID: "", v1alpha1.LabelRole: "", LabelReclaimPolicy: ""},
		}}, true
	}
	return Decision{}, false // its prime is still about, or Kubernetes has yet to say what it is
}

// names says that a volume's claimRef names a prime of this claim. Without a
// record there is no telling which namespace it lived in.
func (v *view) names(ref *corev1.ObjectReference) bool {
	return strings.HasPrefix(ref.Name, namePrefix(v.ClaimUID)) &&
		(v.pop == nil || ref.Namespace == v.namespace || ref.Namespace == v.Namespace)
}
