package clustertest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/cluster/storage"
)

// claim returns a claim of 20 MiB; an empty class means the default one.
func claim(name, class string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  &mode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Mi")},
			},
		},
	}
	if class != "" {
		pvc.Spec.StorageClassName = &class
	}
	return pvc
}

func createClaim(t *testing.T, client kubernetes.Interface, pvc *corev1.PersistentVolumeClaim) {
	t.Helper()
	if _, err := client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), pvc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mountClaim gives the Pod's container the claim's volume at /data.
func mountClaim(pod *corev1.Pod, name string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "data",
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		},
	})
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// eventually polls until check returns no error.
func eventually(t *testing.T, limit time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("after %s: %v", limit, last)
	}
}

// checkSnapshot fills a volume from a snapshot and another from the first
// volume itself.
func checkSnapshot(t *testing.T, c *Cluster, client kubernetes.Interface) {
	createClaim(t, client, claim("original", "", corev1.PersistentVolumeFilesystem))
	write := busybox("write-original", "", "echo original > /data/file && sync")
	mountClaim(write, "original")
	runPod(t, client, write)

	objects := dynamic.NewForConfigOrDie(c.RESTConfig())
	snapshots := schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	_, err := objects.Resource(snapshots).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1",
		"kind":       "VolumeSnapshot",
		"metadata":   map[string]any{"name": "moment"},
		"spec":       map[string]any{"source": map[string]any{"persistentVolumeClaimName": "original"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	group := snapshots.Group
	sources := map[string]*corev1.TypedLocalObjectReference{
		"from-snapshot": {APIGroup: &group, Kind: "VolumeSnapshot", Name: "moment"},
		"from-claim":    {Kind: "PersistentVolumeClaim", Name: "original"},
	}
	for name, source := range sources {
		pvc := claim(name, "", corev1.PersistentVolumeFilesystem)
		pvc.Spec.DataSource = source
		createClaim(t, client, pvc)
		read := busybox("read-"+name, "", "cat /data/file")
		mountClaim(read, name)
		if got, want := runPod(t, client, read), "original\n"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// checkAttributes has the real resizer modify a volume in the real driver.
func checkAttributes(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createClaim(t, client, claim("moving", "sluice-sim-immediate", corev1.PersistentVolumeFilesystem))
	claims := client.CoreV1().PersistentVolumeClaims("default")
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		pvc, err := claims.Get(ctx, "moving", metav1.GetOptions{})
		if err == nil && pvc.Status.Phase != corev1.ClaimBound {
			err = errorf("claim is %s", pvc.Status.Phase)
		}
		return err
	})
	patch := []byte(`{"spec":{"volumeAttributesClassName":"` + storage.AttributesRegional + `"}}`)
	if _, err := claims.Patch(t.Context(), "moving", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func(ctx context.Context) error {
		pvc, err := claims.Get(ctx, "moving", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := pvc.Status.CurrentVolumeAttributesClassName; got == nil || *got != storage.AttributesRegional {
			return errorf("current class is %v, modification %+v", got, pvc.Status.ModifyVolumeStatus)
		}
		return nil
	})
	// With the gate that clusters start with, an administrator may follow.
	volumes := client.CoreV1().PersistentVolumes()
	pvc, err := claims.Get(t.Context(), "moving", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	affinity := `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[` +
		`{"key":"topology.kubernetes.io/region","operator":"In","values":["region-1"]}]}]}}}}`
	pv, err := volumes.Patch(t.Context(), pvc.Spec.VolumeName, types.MergePatchType, []byte(affinity), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := pv.Spec.NodeAffinity.String(); !strings.Contains(got, "region-1") {
		t.Errorf("affinity: got %s, want region-1", got)
	}
}
