package storage

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// Names of the classes that every cluster with storage has.
const (
	// Class binds when a Pod needs the claim. It is the default class.
	Class = "sluice-sim"
	// ImmediateClass binds at once.
	ImmediateClass = "sluice-sim-immediate"
	// SnapshotClass is the default class of snapshots.
	SnapshotClass = "sluice-sim"
)

// Volume attributes classes that every cluster with storage has. Those that
// move a volume take MigrationSeconds.
const (
	AttributesZonal    = "zonal"
	AttributesRegional = "regional"
	AttributesGen1     = "gen1"
	AttributesGen2     = "gen2"
	MigrationSeconds   = "3"
)

func csiDriver() *storagev1.CSIDriver {
	attach, podInfo, capacity := true, false, false
	policy := storagev1.FileFSGroupPolicy
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver.Name},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       &attach,
			PodInfoOnMount:       &podInfo,
			StorageCapacity:      &capacity,
			FSGroupPolicy:        &policy,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
}

func storageClasses() []*storagev1.StorageClass {
	class := func(name string, mode storagev1.VolumeBindingMode, annotations map[string]string) *storagev1.StorageClass {
		expand, reclaim := true, corev1.PersistentVolumeReclaimDelete
		return &storagev1.StorageClass{
			ObjectMeta:           metav1.ObjectMeta{Name: name, Annotations: annotations},
			Provisioner:          driver.Name,
			ReclaimPolicy:        &reclaim,
			AllowVolumeExpansion: &expand,
			VolumeBindingMode:    &mode,
		}
	}
	return []*storagev1.StorageClass{
		class(Class, storagev1.VolumeBindingWaitForFirstConsumer, map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}),
		class(ImmediateClass, storagev1.VolumeBindingImmediate, nil),
	}
}

func attributesClasses() []*storagev1.VolumeAttributesClass {
	class := func(name, parameter, value string) *storagev1.VolumeAttributesClass {
		return &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			DriverName: driver.Name,
			Parameters: map[string]string{parameter: value, topology.MigrationSecondsParameter: MigrationSeconds},
		}
	}
	return []*storagev1.VolumeAttributesClass{
		class(AttributesZonal, topology.PlacementParameter, string(topology.Zonal)),
		class(AttributesRegional, topology.PlacementParameter, string(topology.Regional)),
		class(AttributesGen1, topology.GenerationParameter, string(topology.Gen1)),
		class(AttributesGen2, topology.GenerationParameter, string(topology.Gen2)),
	}
}

func snapshotClass() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1",
		"kind":       "VolumeSnapshotClass",
		"metadata": map[string]any{
			"name":        SnapshotClass,
			"annotations": map[string]any{"snapshot.storage.kubernetes.io/is-default-class": "true"},
		},
		"driver":         driver.Name,
		"deletionPolicy": "Delete",
	}}
}
