package population

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// classOf is a class of the simulated driver, or of another provisioner.
func classOf(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}
}

func TestClassComesLater(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	claim := newClaim(ns, "claim", ns)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonClassNotFound, 10*time.Second)
	class := classOf(ns, simulate.Driver)
	create(t, class)
	t.Cleanup(func() { gone(t, class) })
	bound(t, claim, 20*time.Second)
	clean(t, ns, 5*time.Second)
}

func TestDefaultClassComesLater(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	claim := newClaim(ns, "claim", "")
	claim.Spec.StorageClassName = nil
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonClassNotFound, 10*time.Second)
	class := classOf(ns, simulate.Driver)
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	create(t, class)
	t.Cleanup(func() { gone(t, class) })
	bound(t, claim, 60*time.Second) // Kubernetes gives claims a new default class at its resync
	clean(t, ns, 5*time.Second)
}

func TestClassThatNobodyServes(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	class := classOf(ns, "kubernetes.io/no-more")
	create(t, class)
	t.Cleanup(func() { gone(t, class) })
	claim := newClaim(ns, "claim", ns)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonUnsupportedClass, 10*time.Second)
}

// TestDriverThatLeavesVolumesToRoot lets a worker fill a volume that its group
// would not be given, once its Populator allows it to be root.
func TestDriverThatLeavesVolumesToRoot(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	p := populator(t, runs(0))
	hello(t, ns)
	leave := func(ctx context.Context, policy storagev1.FSGroupPolicy) {
		driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: simulate.Driver}}
		change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"fsGroupPolicy":"`+string(policy)+`"}}`))
		if err := kube.Patch(ctx, driver, change); err != nil {
			t.Errorf("change the driver's fsGroupPolicy: %v", err)
		}
	}
	leave(t.Context(), storagev1.NoneFSGroupPolicy)
	t.Cleanup(func() { leave(context.WithoutCancel(t.Context()), storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy) })
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonVolumeNotWritable, 10*time.Second)
	p.Spec.Worker.RootIfNeeded = true
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 20*time.Second)
	clean(t, ns, 5*time.Second)
}
