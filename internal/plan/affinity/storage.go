package affinity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

// storageMoved says that the storage serves the target.
func (v *view) storageMoved() bool {
	return v.Change.Spec.Storage != change.StorageMovesAfterNarrowing || v.Change.Spec.StorageMoved || v.journal().StorageMovedAt != nil
}

// classTouched says that Sluice has changed the claim's class, or was about to.
func (v *view) classTouched() bool { return v.journal().FromClass != nil }

// storage is the rule of a volume that is safe for old and new: the storage
// moves now, by somebody who says so in spec.storageMoved, or by the claim's
// class (KEP-3751).
func storage(v *view) (Decision, bool) {
	j := v.journal()
	if v.Change.Spec.Storage != change.StorageMovesAfterNarrowing || j.StorageFailed != "" ||
		(j.Stage != change.StageBegun && j.Stage != change.StageNarrowing) {
		return Decision{}, false
	}
	if v.storageMoved() {
		if j.StorageMovedAt == nil {
			return v.note(WhyStorage, func(j *change.Journal) { j.StorageMovedAt = v.time() }), true
		}
		return Decision{}, false
	}
	if v.Change.Spec.VolumeAttributesClassName != nil {
		return v.moveByClass(), true
	}
	return v.wait(WhyStorage, change.PhaseStorageMoving, change.ReasonWaitingForStorage,
		"No Pod can be where the storage will not be: move it, then set spec.storageMoved to true, or spec.state to Aborted", nil), true
}

// moveByClass has the driver move the storage by the claim's class.
func (v *view) moveByClass() Decision {
	j, want := v.journal(), *v.Change.Spec.VolumeAttributesClassName
	switch {
	case v.Claim == nil && !v.Live:
		return Decision{NeedLive: true, Why: WhyClass}
	case v.Claim == nil:
		return v.failStorage(fmt.Sprintf("PersistentVolume %q has no claim whose class could be changed", v.Volume.Name))
	case j.FromClass == nil:
		return v.note(WhyClass, func(j *change.Journal) {
			j.FromClass = ptr.To(ptr.Deref(v.Claim.Spec.VolumeAttributesClassName, ""))
		})
	}
	has := ptr.Deref(v.Claim.Spec.VolumeAttributesClassName, "")
	switch {
	case has == want:
	case j.ClassSeenAt == nil && has == *j.FromClass:
		return v.setClass(WhyClass, want)
	default:
		return v.failStorage(fmt.Sprintf("The claim's class was changed to %q by somebody else", has))
	}
	if j.ClassSeenAt == nil {
		return v.note(WhyClass, func(j *change.Journal) { j.ClassSeenAt = v.time() })
	}
	m := v.Claim.Status.ModifyVolumeStatus
	switch {
	case ptr.Deref(v.Volume.Spec.VolumeAttributesClassName, "") == want && m == nil:
		return v.note(WhyStorage, func(j *change.Journal) { j.StorageMovedAt = v.time() })
	case m != nil && m.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible && m.TargetVolumeAttributesClassName == want:
		return v.failStorage(fmt.Sprintf("The driver refuses VolumeAttributesClass %q as infeasible", want))
	}
	return v.wait(WhyStorage, change.PhaseStorageMoving, change.ReasonWaitingForStorage, fmt.Sprintf(
		"The driver modifies the volume to VolumeAttributesClass %q; see the events of claim %q", want, v.Claim.Namespace+"/"+v.Claim.Name), nil)
}

func (v *view) setClass(why, class string) Decision {
	if !v.Live {
		return Decision{NeedLive: true, Why: why}
	}
	step := SetClass{Namespace: v.Claim.Namespace, Name: v.Claim.Name, UID: v.Claim.UID, ResourceVersion: v.Claim.ResourceVersion}
	if class != "" {
		step.Class = &class
	}
	return Decision{Why: why, Step: step}
}

// failStorage notes that the storage does not move, and why.
func (v *view) failStorage(why string) Decision {
	return v.note(WhyStorage, func(j *change.Journal) { j.StorageFailed = why })
}

// storageFailed is the rule of storage that did not move: the claim gets its old
// class back, and once the volume has that, its old affinity.
func storageFailed(v *view) (Decision, bool) {
	j := v.journal()
	if j.StorageFailed == "" || j.Stage == change.StageRestore {
		return Decision{}, false
	}
	if j.FromClass == nil || v.Claim == nil {
		return v.restore(WhyClassBack), true
	}
	if ptr.Deref(v.Claim.Spec.VolumeAttributesClassName, "") == *v.Change.Spec.VolumeAttributesClassName {
		return v.setClass(WhyClassBack, *j.FromClass), true
	}
	if ptr.Deref(v.Volume.Spec.VolumeAttributesClassName, "") != *j.FromClass || v.Claim.Status.ModifyVolumeStatus != nil {
		return v.wait(WhyClassBack, change.PhaseRestoring, change.ReasonWaitingForStorage,
			"Waiting for the volume to have its old VolumeAttributesClass, then the old affinity is restored: "+j.StorageFailed, nil), true
	}
	return v.restore(WhyClassBack), true
}
