package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
	"github.com/sluice-dev/sluice/cluster/storage"
)

var snapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// TestStorage runs all tests at once, each in a namespace of its own, and then
// sees that with the namespaces every disk is gone, too.
func TestStorage(t *testing.T) {
	t.Run("All", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"Volumes": testVolumes, "Grow": testGrow, "Move": testMove,
			"WrongPlacementIsStuck": testWrongPlacementIsStuck, "Fault": testFault,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	eventually(t, "no disk is left", func(ctx context.Context) error {
		volumes, err := kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left, err := disks.Volumes()
		if err != nil {
			return err
		}
		copies, err := disks.Snapshots()
		if err != nil {
			return err
		}
		if len(volumes.Items)+len(left)+len(copies) > 0 {
			return fmt.Errorf("%d volumes, %d disks and %d snapshots are left", len(volumes.Items), len(left), len(copies))
		}
		return nil
	})
}

// testVolumes writes to a volume of each kind, and reads it from a clone and
// from a snapshot.
func testVolumes(t *testing.T) {
	for name, v := range map[string]volume{
		"FileSystemWaiting":   {},
		"FileSystemImmediate": {class: storage.ImmediateClass},
		"BlockWaiting":        {block: true},
		"BlockImmediate":      {block: true, class: storage.ImmediateClass},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			write, read := "echo sluice > /volume/file; cat /volume/file", "cat /volume/file"
			if v.block {
				write = "echo sluice | dd of=/dev/volume bs=512 conv=sync,fsync 2>/dev/null; head -n 1 /dev/volume"
				read = "head -n 1 /dev/volume"
			}
			v.claim(t, ns, "origin")
			v.run(t, ns, "writer", "origin", "", write)
			if got := prints(t, ns, "writer"); got != "sluice\n" {
				t.Fatalf("the writer printed %q", got)
			}
			snapshot(t, ns, "snapshot", "origin")

			group := snapshots.Group
			for copied, from := range map[string]*corev1.TypedObjectReference{
				"clone":    {Kind: "PersistentVolumeClaim", Name: "origin"},
				"restored": {APIGroup: &group, Kind: "VolumeSnapshot", Name: "snapshot"},
			} {
				c := v
				c.from = from
				c.claim(t, ns, copied)
				c.run(t, ns, copied, copied, "", read)
			}
			for _, copied := range []string{"clone", "restored"} {
				if got := prints(t, ns, copied); got != "sluice\n" {
					t.Errorf("%s holds %q", copied, got)
				}
			}
		})
	}
}

// snapshot takes a snapshot of a claim and waits until it is ready.
func snapshot(t *testing.T, namespace, name, claim string) {
	t.Helper()
	s := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"source": map[string]any{"persistentVolumeClaimName": claim}},
	}}
	client := objects.Resource(snapshots).Namespace(namespace)
	if _, err := client.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("snapshot %q is ready", name), func(ctx context.Context) error {
		now, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(now.Object, "status", "readyToUse"); !ready {
			return fmt.Errorf("its status is %v", now.Object["status"])
		}
		return nil
	})
}

// testGrow grows a block volume under a running Pod, and a file system between
// two: growing ext4 under a Pod takes a capability that not every machine gives.
func testGrow(t *testing.T) {
	t.Run("BlockOnline", func(t *testing.T) {
		t.Parallel()
		ns, v := space(t), volume{block: true}
		v.claim(t, ns, "claim")
		v.run(t, ns, "user", "claim", "", "until [ $(blockdev --getsize64 /dev/volume) = 20971520 ]; do sleep 0.2; done; echo grown")
		reaches(t, ns, "user", corev1.PodRunning)
		grow(t, ns, "claim")
		poke(t, ns, "user", "claim")
		if got := prints(t, ns, "user"); got != "grown\n" {
			t.Errorf("the Pod printed %q", got)
		}
		capacity(t, ns, "claim")
	})
	t.Run("FileSystemBetweenPods", func(t *testing.T) {
		t.Parallel()
		ns, v := space(t), volume{}
		v.claim(t, ns, "claim")
		v.run(t, ns, "first", "claim", "", "echo sluice > /volume/file")
		prints(t, ns, "first")
		remove(t, ns, "first")
		grow(t, ns, "claim")
		v.run(t, ns, "second", "claim", "", "cat /volume/file; [ $(df -k /volume | tail -n 1 | awk '{print $2}') -gt 16000 ] && echo grown")
		if got := prints(t, ns, "second"); got != "sluice\ngrown\n" {
			t.Errorf("the Pod printed %q", got)
		}
		capacity(t, ns, "claim")
	})
}

func grow(t *testing.T, namespace, claim string) {
	t.Helper()
	patch := []byte(`{"spec":{"resources":{"requests":{"storage":"20Mi"}}}}`)
	if _, err := kube.CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// poke changes a Pod once its claim waits for the node: the kubelet looks at the
// volumes of a Pod that changed at once, of others every minute or two.
func poke(t *testing.T, namespace, pod, claim string) {
	t.Helper()
	eventually(t, fmt.Sprintf("claim %q waits for its node", claim), func(ctx context.Context) error {
		c, err := kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; s != corev1.PersistentVolumeClaimNodeResizePending {
			return fmt.Errorf("its resize is %q", s)
		}
		return nil
	})
	patch := []byte(`{"metadata":{"annotations":{"test.sluice.dev/poked":"true"}}}`)
	if _, err := kube.CoreV1().Pods(namespace).Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// capacity waits until a claim says that it has grown.
func capacity(t *testing.T, namespace, claim string) {
	t.Helper()
	eventually(t, fmt.Sprintf("claim %q has 20Mi", claim), func(ctx context.Context) error {
		c, err := kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if size := c.Status.Capacity.Storage().String(); size != "20Mi" {
			return fmt.Errorf("it has %s: %+v", size, c.Status.Conditions)
		}
		return nil
	})
}

// testMove changes a claim's volume attributes class under a running Pod: the
// driver's idea of where the volume is changes when the move has ended, and
// until Sluice says so, Kubernetes' does not.
func testMove(t *testing.T) {
	ns, v := space(t), volume{}
	v.claim(t, ns, "claim")
	v.run(t, ns, "user", "claim", node1, "sleep 1000")
	reaches(t, ns, "user", corev1.PodRunning)
	disk, pv := record(t, ns, "claim")
	if diff := cmp.Diff(map[string]string{topology.ZoneKey: zoneA}, disk.Location.Segments()); diff != "" {
		t.Errorf("a zonal volume: -want, +got:\n%s", diff)
	}
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		t.Fatalf("want one term in the volume's affinity, got %+v", affinity)
	}
	want := []corev1.NodeSelectorRequirement{{Key: topology.ZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zoneA}}}
	if diff := cmp.Diff(want, affinity.Required.NodeSelectorTerms[0].MatchExpressions); diff != "" {
		t.Errorf("the volume's affinity: -want, +got:\n%s", diff)
	}

	patch := []byte(fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, storage.AttributesRegional))
	if _, err := kube.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), "claim", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim has its new class", func(ctx context.Context) error {
		c, err := kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "claim", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now := c.Status.CurrentVolumeAttributesClassName; now == nil || *now != storage.AttributesRegional {
			return fmt.Errorf("its status is %+v", c.Status.ModifyVolumeStatus)
		}
		return nil
	})
	disk, pv = record(t, ns, "claim")
	if diff := cmp.Diff(map[string]string{topology.RegionKey: "region-1"}, disk.Location.Segments()); diff != "" {
		t.Errorf("a regional volume: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(affinity, pv.Spec.NodeAffinity); diff != "" {
		t.Errorf("nobody changes the affinity yet: -want, +got:\n%s", diff)
	}
	reaches(t, ns, "user", corev1.PodRunning)
}

// testWrongPlacementIsStuck lets Kubernetes believe that a volume reaches every
// node: a Pod in another zone is scheduled, and never starts.
func testWrongPlacementIsStuck(t *testing.T) {
	ns, v := space(t), volume{}
	v.claim(t, ns, "claim")
	v.run(t, ns, "first", "claim", node1, "true")
	prints(t, ns, "first")
	remove(t, ns, "first")
	_, pv := record(t, ns, "claim")
	lie := []byte(`[{"op":"replace","path":"/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0",
		"value":{"key":"topology.kubernetes.io/region","operator":"Exists"}}]`)
	if _, err := kube.CoreV1().PersistentVolumes().Patch(t.Context(), pv.Name, types.JSONPatchType, lie, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	v.run(t, ns, "second", "claim", node2, "true")
	eventually(t, "the driver refuses to attach", func(ctx context.Context) error {
		events, err := kube.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=second"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "FailedAttachVolume" && strings.Contains(e.Message, "cannot reach volume") {
				return nil
			}
		}
		return fmt.Errorf("%d events do not say so", len(events.Items))
	})
	if pod := reaches(t, ns, "second", corev1.PodPending); pod.Spec.NodeName != node2 {
		t.Errorf("want the Pod bound to %s, got %q", node2, pod.Spec.NodeName)
	}
}

// testFault has the storage be full for a while: the provisioner hands the node
// back, the Pod is scheduled anew, and in the end it runs.
func testFault(t *testing.T) {
	ns, v := space(t), volume{}
	full := fault.Fault{Name: ns, Method: "CreateVolume", Claim: ns + "/claim", Code: fault.Code(codes.ResourceExhausted), Message: "no room", Times: 2}
	if err := faults.Add(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	v.claim(t, ns, "claim")
	v.run(t, ns, "user", "claim", "", "echo at last")
	if got := prints(t, ns, "user"); got != "at last\n" {
		t.Errorf("the Pod printed %q", got)
	}
	events, err := kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=claim,reason=ProvisioningFailed"})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "no room") {
		t.Errorf("want the claim to say why it waited, got %+v", events.Items)
	}
	if left, err := faults.List(); err != nil || len(left) > 0 {
		t.Errorf("want the fault used up, got %+v, %v", left, err)
	}
}
