package simulate

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Annotations of the contract between Kubernetes and a provisioner.
const (
	annStorageProvisioner = "volume.kubernetes.io/storage-provisioner"
	annSelectedNode       = "volume.kubernetes.io/selected-node"
	annProvisionedBy      = "pv.kubernetes.io/provisioned-by"
)

// provisioner makes volumes for claims and deletes released ones, by the same
// signs as the real one.
type provisioner struct {
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister

	make, remove *worker
}

func newProvisioner(client kubernetes.Interface, factory informers.SharedInformerFactory) (*provisioner, error) {
	claims, volumes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	p := &provisioner{client: client, claims: claims.Lister(), volumes: volumes.Lister(), classes: classes.Lister()}
	p.make = newWorker("provisioner", p.provision)
	p.remove = newWorker("reclaimer", p.reclaim)
	if _, err := claims.Informer().AddEventHandler(p.make.handler()); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	if _, err := volumes.Informer().AddEventHandler(p.remove.handler()); err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	return p, nil
}

func (p *provisioner) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.make.run(ctx) })
	both.Go(func() { p.remove.run(ctx) })
	both.Wait()
}

// provision makes the volume of a claim that waits for one of this driver.
func (p *provisioner) provision(ctx context.Context, key string) (time.Duration, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, nil //nolint:nilerr // no key of ours
	}
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get claim %q: %w", key, err)
	}
	// A claim with a data source of a foreign kind is left to whoever fills it.
	if claim.Annotations[annStorageProvisioner] != Driver || claim.Spec.VolumeName != "" ||
		claim.Spec.DataSourceRef != nil || claim.DeletionTimestamp != nil || claim.Spec.StorageClassName == nil {
		return 0, nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return 0, fmt.Errorf("get class of claim %q: %w", key, err)
	}
	node := claim.Annotations[annSelectedNode]
	if *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && node == "" {
		return 0, nil
	}
	if delay, ok := duration(claim.Annotations, AnnotationProvisioning); ok {
		if left := delay - time.Since(claim.CreationTimestamp.Time); left > 0 {
			return left, nil
		}
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, volumeFor(claim, class, node), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, fmt.Errorf("create volume of claim %q: %w", key, err)
	}
	return 0, nil
}

func volumeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annProvisionedBy: Driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			VolumeAttributesClassName:     claim.Spec.VolumeAttributesClassName,
			MountOptions:                  class.MountOptions,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: name, FSType: "ext4"},
			},
		},
	}
	if node != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}}}}
	}
	return v
}

// reclaim deletes a released volume whose policy says so.
func (p *provisioner) reclaim(ctx context.Context, name string) (time.Duration, error) {
	v, err := p.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get volume %q: %w", name, err)
	}
	if v.Annotations[annProvisionedBy] != Driver || v.Status.Phase != corev1.VolumeReleased ||
		v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || v.DeletionTimestamp != nil {
		return 0, nil
	}
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(v.UID)},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("delete volume %q: %w", name, err)
	}
	return 0, nil
}
