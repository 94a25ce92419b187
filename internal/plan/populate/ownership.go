package populate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A worker is no more than an ordinary user, and gets at its volume by fsGroup:
// the kubelet gives the volume's files to the worker's group. Not of every
// volume: the CSI driver's fsGroupPolicy decides, as in the kubelet's
// supportsFSGroup. The files of such a volume belong to root.

// paramFSType is the parameter of a class that names the file system.
const paramFSType = "csi.storage.k8s.io/fstype"

// rootOwned says that fsGroup has no effect on the volume; pv is nil while it is
// not known, and then no is also "not known yet".
func (v *view) rootOwned(pv *corev1.PersistentVolume) bool {
	if v.Class == nil || ptr.Deref(v.claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
		return false
	}
	modes, fsType := v.primeModes(), v.Class.Parameters[paramFSType]
	if pv != nil {
		if pv.Spec.CSI == nil {
			return false
		}
		modes, fsType = pv.Spec.AccessModes, pv.Spec.CSI.FSType
	}
	switch v.fsGroupPolicy() {
	case storagev1.NoneFSGroupPolicy:
		return true
	case storagev1.FileFSGroupPolicy:
		return false
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
	}
	// Without a parameter the provisioner has a default of its own.
	one := slices.Contains(modes, corev1.ReadWriteOnce) || slices.Contains(modes, corev1.ReadWriteOncePod)
	return !one || (fsType == "" && pv != nil)
}

// fsGroupPolicy is the policy of the class's driver, or Kubernetes' default.
func (v *view) fsGroupPolicy() storagev1.FSGroupPolicy {
	if v.Driver == nil || v.Driver.Spec.FSGroupPolicy == nil {
		return storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	}
	return *v.Driver.Spec.FSGroupPolicy
}

// mayBeRoot says that the worker is to be root where nobody else could write.
func (v *view) mayBeRoot() bool {
	t := v.template()
	return t != nil && t.RootIfNeeded
}

// choosesUser says that the template itself says who the worker is; its author
// knows what that user may write to. So it does where there is no template: a
// plugin has yet to compute it, or fills without a worker.
func (v *view) choosesUser() bool {
	t := v.template()
	return t == nil || t.SecurityContext != nil && t.SecurityContext.RunAsUser != nil
}

// template is what the worker of attempt n is made from, as far as it is known.
func (v *view) template() *v1alpha1.WorkerTemplate {
	if v.Populator.Spec.Worker != nil || v.prime == nil {
		return v.Populator.Spec.Worker
	}
	if a := v.answer(CallCompute, ComputeID(v.ClaimUID, v.n, v.prime.Spec.VolumeName)); a != nil {
		return a.Worker
	}
	return nil
}

// checkOwner is the check that the worker will be able to write, as far as that
// can be known without its volume.
func checkOwner(v *view) *obstacle { return v.notWritable(nil) }

// notWritable is the obstacle of a volume that the worker could not write to.
func (v *view) notWritable(pv *corev1.PersistentVolume) *obstacle {
	if v.mayBeRoot() || v.choosesUser() || !v.rootOwned(pv) {
		return nil
	}
	return &obstacle{reason: v1alpha1.ReasonVolumeNotWritable, act: true, message: fmt.Sprintf(
		"CSI driver %q has fsGroupPolicy %s and leaves the volume to root, so that the worker could not write to it; set rootIfNeeded in Populator %q, or fsGroupPolicy File in the CSIDriver",
		v.Class.Provisioner, v.fsGroupPolicy(), v.Populator.Name)}
}

// asOwner makes a rendered worker root where nobody else may write to the volume
// and its populator allows it; without any capability.
func (v *view) asOwner(w *corev1.Pod, pv *corev1.PersistentVolume) {
	if !v.mayBeRoot() || v.choosesUser() || !v.rootOwned(pv) {
		return
	}
	for i := range w.Spec.Containers {
		c := &w.Spec.Containers[i]
		if c.Name != v1alpha1.WorkerContainer {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup = ptr.To[int64](0), ptr.To[int64](0)
		c.SecurityContext.RunAsNonRoot = ptr.To(false)
		if c.SecurityContext.Capabilities == nil {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		}
	}
}
