package observe

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// annotationBindCompleted is set by Kubernetes on a claim once the claim's own
// binding is complete.
const annotationBindCompleted = "pv.kubernetes.io/bind-completed"

// annotationLastApplied holds a whole second copy of an object.
const annotationLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Settled says that a claim is bound for good and needs nothing more.
func Settled(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && claim.Annotations[annotationBindCompleted] != "" && claim.DeletionTimestamp == nil
}

// CacheByObject is what the manager's cache keeps of the kinds that a
// population needs. Memory is what it is about: a cluster has many more claims
// and Pods than populations.
//
// Pods are those that carry our label only. Other controllers that need other
// Pods must bring a cache of their own.
func CacheByObject() map[client.Object]cache.ByObject {
	labelled, err := labels.NewRequirement(v1alpha1.LabelClaimUID, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                   {Label: labels.NewSelector().Add(*labelled)},
		&corev1.PersistentVolumeClaim{}: {Transform: trimClaim},
		&corev1.PersistentVolume{}:      {Transform: trimVolume},
	}
}

// PendingByObject is what the cache of consumers keeps: Pods that have no node
// yet, and of these only which claims they use and what they ask of a node.
func PendingByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Field: fields.AndSelectors(
				fields.OneTermEqualSelector("spec.nodeName", ""),
				fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)),
			),
			Transform: trimConsumer,
		},
	}
}

// trimClaim drops what no decision reads; of a settled claim little is left.
func trimClaim(item any) (any, error) {
	claim, ok := item.(*corev1.PersistentVolumeClaim)
	if !ok {
		return item, nil
	}
	claim.ManagedFields = nil
	delete(claim.Annotations, annotationLastApplied)
	claim.Status.Conditions = nil
	if !Settled(claim) {
		return claim, nil
	}
	claim.Annotations = only(claim.Annotations, annotationBindCompleted, v1alpha1.AnnotationSourceNamespace,
		v1alpha1.AnnotationClaim, v1alpha1.AnnotationNonce, v1alpha1.AnnotationPopulator)
	claim.Labels = only(claim.Labels, v1alpha1.LabelClaimUID, v1alpha1.LabelAttempt, v1alpha1.LabelRole)
	return claim, nil
}

// trimVolume drops what no decision reads: the driver's own attributes and
// references to its Secrets, and who manages which field.
func trimVolume(item any) (any, error) {
	volume, ok := item.(*corev1.PersistentVolume)
	if !ok {
		return item, nil
	}
	volume.ManagedFields = nil
	delete(volume.Annotations, annotationLastApplied)
	if csi := volume.Spec.CSI; csi != nil {
		volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, FSType: csi.FSType}
	}
	return volume, nil
}

// trimConsumer keeps a Pod's identity, claims, and what it asks of its node.
func trimConsumer(item any) (any, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return item, nil
	}
	pod.ManagedFields, pod.Annotations, pod.Labels = nil, nil, nil
	var volumes []corev1.Volume
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			volumes = append(volumes, v)
		case v.Ephemeral != nil:
			volumes = append(volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	spec := corev1.PodSpec{Volumes: volumes, Tolerations: pod.Spec.Tolerations, NodeSelector: pod.Spec.NodeSelector}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	pod.Spec = spec
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	return pod, nil
}

// only returns the named entries of a map, nil if there are none.
func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if out == nil {
				out = make(map[string]string, len(keys))
			}
			out[k] = v
		}
	}
	return out
}
