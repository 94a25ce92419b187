package populate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func driver(policy storagev1.FSGroupPolicy) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Driver = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: o.Class.Provisioner}, Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &policy}}
	}
}

func rootIfNeeded(o *populate.Observed) { o.Populator.Spec.Worker.RootIfNeeded = true }

// csi is a volume of a CSI driver.
func csi(fsType string, modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", FSType: fsType}
		pv.Spec.AccessModes = modes
	}
}

func TestNextOwnership(t *testing.T) {
	const none, file, byDefault = storagev1.NoneFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	waits := outline{Step: "status Waiting VolumeNotWritable", Event: "Warning VolumeNotWritable", Again: 5 * time.Minute, Why: populate.WhyWaiting}
	goesOn := outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt}
	begins := outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker}
	many := func(o *populate.Observed) {
		o.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	run(t, map[string]nextCase{
		"None":           {"A volume that stays root's is no use to a worker", observed(live, population(0), driver(none)), waits},
		"NoneRootNeeded": {"Unless the worker may be root", observed(live, population(0), driver(none), rootIfNeeded), goesOn},
		"NoneUserChosen": {"Who names a user knows what it may write to", observed(live, population(0), driver(none), func(o *populate.Observed) {
			o.Populator.Spec.Worker.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](1000)}
		}), goesOn},
		"NoneBlock": {"A device is root's anyway, and its worker root", observed(live, population(0), driver(none), func(o *populate.Observed) {
			o.Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		}), goesOn},
		"File":            {"A driver that always applies fsGroup", observed(live, population(0), driver(file), many), goesOn},
		"Default":         {"Whether there is a file system type is known with the volume", observed(live, population(0), driver(byDefault)), goesOn},
		"DefaultMany":     {"By default volumes for many nodes are left alone", observed(live, population(0), driver(byDefault), many), waits},
		"NoDriverMany":    {"The default is for drivers that are not registered, too", observed(live, population(0), many), waits},
		"VolumeWithType":  {"A file system of a type is given to the group", observed(live, population(1), prime(primeBound), volume(csi("ext4", corev1.ReadWriteOnce)), rendered), begins},
		"VolumeNoType":    {"One of no type is not", observed(live, population(1), prime(primeBound), volume(csi("", corev1.ReadWriteOnce)), rendered), waits},
		"VolumeNoTypeFor": {"For root that is all one", observed(live, population(1), prime(primeBound), volume(csi("", corev1.ReadWriteOnce)), rendered, rootIfNeeded), begins},
		"VolumeNotCSI":    {"Of other volumes nothing is known", observed(live, population(1), prime(primeBound), volume(), rendered), begins},
	})
}

func TestWorkerIsRootOnlyWhereItMustBe(t *testing.T) {
	cases := map[string]struct {
		reason string
		fsType string
		root   bool
	}{
		"Needed":    {"The volume is left to root", "", true},
		"NotNeeded": {"The volume is given to the worker's group", "ext4", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed(live, population(1), prime(primeBound), volume(csi(tc.fsType, corev1.ReadWriteOnce)), rendered, rootIfNeeded)
			o.Rendered.Pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
				RunAsUser: ptr.To[int64](65532), RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
			step, ok := populate.Next(o).Step.(populate.CreateWorker)
			if !ok {
				t.Fatalf("want CreateWorker, got %+v", populate.Next(o))
			}
			s := step.Worker.Spec.Containers[0].SecurityContext
			if root := *s.RunAsUser == 0; root != tc.root || *s.RunAsNonRoot == tc.root || len(s.Capabilities.Drop) != 1 {
				t.Errorf("%s: got %+v, want root %t without capabilities", tc.reason, s, tc.root)
			}
		})
	}
}

func TestNextInTreeProvisioner(t *testing.T) {
	inTree := func(o *populate.Observed) { o.Class.Provisioner = "kubernetes.io/example" }
	by := func(name string) func(*populate.Observed) {
		return func(o *populate.Observed) {
			metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "volume.kubernetes.io/storage-provisioner", name)
		}
	}
	waits := outline{Step: "status Waiting UnsupportedClass", Event: "Warning UnsupportedClass", Again: 3 * time.Second, Why: populate.WhyWaiting}
	goesOn := outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt}
	run(t, map[string]nextCase{
		"Served":   {"A CSI driver stands in for it", observed(live, population(0), inTree, by("disk.example.com")), goesOn},
		"Unserved": {"Nobody will ever make a volume", observed(live, population(0), inTree), waits},
		"Young": {"Kubernetes may have yet to name the driver", observed(live, inTree, func(o *populate.Observed) { o.Claim.CreationTimestamp = at(time.Second) }),
			outline{Again: 2 * time.Second, Why: populate.WhyWaiting}},
		"NoNode": {"For a class that waits Kubernetes names it with the node", observed(live, population(0), inTree, waitsForConsumer),
			outline{Step: "status Waiting " + v1alpha1.ReasonWaitingForConsumer, Event: "Normal " + v1alpha1.ReasonWaitingForConsumer, Again: 5 * time.Minute, Why: populate.WhyWaiting}},
	})
}
