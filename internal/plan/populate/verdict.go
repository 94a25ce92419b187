package populate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// boundTo says that a claim or prime is Bound, and names its volume.
func boundTo(c *corev1.PersistentVolumeClaim) (string, bool) {
	return c.Spec.VolumeName, c.Spec.VolumeName != "" && c.Status.Phase == corev1.ClaimBound
}

// origin is where the volume of a prime comes from.
type origin int

const (
	// unknown: the observation does not show the two bound to each other.
	unknown origin = iota
	// provisioned: made for this prime.
	provisioned
	// foreignVolume: somebody's volume that the prime was matched with.
	foreignVolume
)

// originOf judges the volume that a prime names. A provisioner sets claimRef
// when it creates the volume; Kubernetes' own matching leaves the mark
// bound-by-controller. That the volume says who provisioned it proves nothing.
func originOf(prime *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) origin {
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != prime.UID {
		return unknown
	}
	_, matched := pv.Annotations[annBoundByController]
	// Provisioners name volumes after the claim's UID, which nobody knew before
	// there was the claim. Where they do not, its age has to do, and the clocks
	// of API servers are trusted.
	named := prime.UID != "" && strings.HasSuffix(pv.Name, string(prime.UID))
	if matched || (!named && pv.CreationTimestamp.Time.Before(prime.CreationTimestamp.Time)) {
		return foreignVolume
	}
	return provisioned
}

// Matched says that a prime is bound to a volume that was there before it, and
// is somebody's: where the volume's policy is not Retain, it would be deleted
// with the prime.
func Matched(prime *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	return originOf(prime, pv) == foreignVolume
}

// whole says that a volume is, in this observation, Bound to a prime and
// nothing about it is on its way out.
func whole(prime *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, uid types.UID, policy corev1.PersistentVolumeReclaimPolicy) bool {
	return originOf(prime, pv) == provisioned &&
		(uid == "" || pv.UID == uid) &&
		pv.DeletionTimestamp == nil &&
		pv.Status.Phase == corev1.VolumeBound &&
		pv.Spec.PersistentVolumeReclaimPolicy == policy
}

// progress is how far a worker is.
type progress int

const (
	// pending: the worker's container has not started.
	pending progress = iota
	// running: the worker's container writes.
	running
	// succeeded: the kubelet says that the container ended well.
	succeeded
	// failed: the container ended badly, or it is certain that it will not end
	// well.
	failed
)

// progressOf judges a worker by its container named worker: whatever was
// injected beside it does not count. A container that ended well while its Pod
// was being stopped may have been told to end, so that does not count either.
func progressOf(w *corev1.Pod) (progress, *corev1.ContainerStateTerminated) {
	container := workerStatus(w)
	var end *corev1.ContainerStateTerminated
	if container != nil {
		end = container.State.Terminated
	}
	if end == nil {
		end = notOffered(w)
	}
	switch {
	case w.DeletionTimestamp != nil, w.Status.Phase == corev1.PodFailed, disrupted(w):
		return failed, end
	case end != nil && end.ExitCode == 0:
		return succeeded, end
	case end != nil:
		return failed, end
	case container != nil && container.State.Running != nil:
		return running, nil
	}
	return pending, nil
}

// ended says that the kubelet reports the worker's container as terminated, or
// that the Pod will never start one.
func ended(w *corev1.Pod) bool {
	c := workerStatus(w)
	return (c != nil && c.State.Terminated != nil) || w.Status.Phase == corev1.PodFailed || w.Status.Phase == corev1.PodSucceeded
}

// notOffered is how the container ended that found a Secret of the worker not
// offered: the worker's own never started then. Nil if it found none.
func notOffered(w *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range w.Status.InitContainerStatuses {
		s := &w.Status.InitContainerStatuses[i]
		if end := s.State.Terminated; s.Name == v1alpha1.OfferContainer && end != nil && end.ExitCode != 0 {
			return end
		}
	}
	return nil
}

func workerStatus(w *corev1.Pod) *corev1.ContainerStatus {
	for i := range w.Status.ContainerStatuses {
		if w.Status.ContainerStatuses[i].Name == v1alpha1.WorkerContainer {
			return &w.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// disrupted says that the Pod is being evicted, preempted or collected.
func disrupted(w *corev1.Pod) bool {
	c := podCondition(w, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue
}

func podCondition(w *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range w.Status.Conditions {
		if w.Status.Conditions[i].Type == t {
			return &w.Status.Conditions[i]
		}
	}
	return nil
}
