package plantest

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Scenario is the world that a claim is created in.
type Scenario struct {
	// Name of the scenario, for traces.
	Name string
	// WaitForConsumer makes the class bind when a consumer has a node. A consumer
	// is always about.
	WaitForConsumer bool
	// Immediately annotates the claim to be filled before it has a node, and
	// leaves the consumer out.
	Immediately bool
	// Retain makes the class keep the volumes of deleted claims.
	Retain bool
	// ForeignVolume puts somebody's Available volume of the class into the
	// cluster, which Kubernetes may bind to a claim that waits for a provisioner.
	ForeignVolume bool
	// NameTaken puts objects that are not ours under the names of the first
	// attempt.
	NameTaken bool
	// LateSource makes the source appear only when a user creates it.
	LateSource bool
	// ReadOnly makes the claim ask for ReadOnlyMany alone.
	ReadOnly bool
	// AlwaysFails makes every worker, or every fill of the plugin, fail.
	AlwaysFails bool
	// Placement of the populator, if temporaries are to live in another namespace
	// than the claim. With PlacementSource the source lives there too, and is
	// granted to the claim.
	Placement v1alpha1.Placement
	// Plugin has volumes filled by a plugin instead of a worker.
	Plugin bool
	// Doomed has the user delete the claim some time, as a matter of course, and
	// not create it again.
	Doomed bool
	// RootOwned leaves volumes to root, whatever the worker's group; the populator
	// lets its worker be root only when a user says so.
	RootOwned bool
	// Unreachable has a Pod wait for the claim that can run on no node which
	// reaches a volume of the class.
	Unreachable bool
	// Crowded has a neighbour filled first, and perhaps another later.
	Crowded bool
}

const (
	namespace       = "tenant"
	system          = "system"
	origin          = "origin"
	claimName       = "data"
	className       = "class"
	provisionerName = "disk.example.com"
	maxAttempts     = 4
)

func (sc Scenario) policy() corev1.PersistentVolumeReclaimPolicy {
	if sc.Retain {
		return corev1.PersistentVolumeReclaimRetain
	}
	return corev1.PersistentVolumeReclaimDelete
}

func (sc Scenario) class() *storagev1.StorageClass {
	mode := storagev1.VolumeBindingImmediate
	if sc.WaitForConsumer || sc.Immediately {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: className},
		Provisioner:       provisionerName,
		ReclaimPolicy:     ptr.To(sc.policy()),
		VolumeBindingMode: &mode,
	}
}

func (sc Scenario) claim(uid string) *corev1.PersistentVolumeClaim {
	c := Claim(claimName, uid)
	if sc.ReadOnly {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
	c.Annotations = map[string]string{storageProvisioner: provisionerName}
	if sc.Immediately {
		c.Annotations[v1alpha1.AnnotationPopulate] = v1alpha1.PopulateImmediately
	}
	return c
}

// elsewhere says that temporaries live in another namespace than the claim.
func (sc Scenario) elsewhere() bool { return sc.Placement != "" }

// sourceNamespace is where the source lives.
func (sc Scenario) sourceNamespace() string {
	if sc.Placement == v1alpha1.PlacementSource {
		return origin
	}
	return namespace
}

// Claim is a claim of the model's class that asks to be filled.
func Claim(name, uid string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: typesUID(uid)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To(className),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("hello.example.com"), Kind: "Hello", Name: "hello"},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// Populator is the populator of the model's source kind.
func Populator() *v1alpha1.Populator {
	return &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Generation: 1},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind:  v1alpha1.SourceKind{Group: "hello.example.com", Kind: "Hello"},
			Worker:      &v1alpha1.WorkerTemplate{Image: "example.com/hello"},
			MaxAttempts: maxAttempts, ReadOnlyMany: true,
		},
	}
}

// WorkerPod is what the model's template renders.
func WorkerPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: v1alpha1.WorkerContainer, Image: "example.com/hello",
		VolumeMounts: []corev1.VolumeMount{{Name: v1alpha1.TargetVolume, MountPath: v1alpha1.TargetPath}},
	}}}}
}
