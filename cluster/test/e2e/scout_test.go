package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/csi/driver"
)

// TestFilledBeforeThereIsAPod fills a claim of a class that waits for a
// consumer before there is one. Somebody's Available volume of the class is
// about, which the scheduler likes better than a new one.
func TestFilledBeforeThereIsAPod(t *testing.T) {
	t.Parallel()
	ns := space(t)
	class := waitingClass(t, ns)
	theirs := abandoned(t, ns, class)
	before := stat(t, ns, "before", class, theirs)

	create(t, source(groupTest, "Delay", ns, map[string]any{"seconds": int64(1), "text": "done"}))
	claim := claimFor(ns, "claim", class, corev1.PersistentVolumeFilesystem, groupTest, "Delay", "src")
	claim.Annotations = map[string]string{v1alpha1.AnnotationPopulate: v1alpha1.PopulateImmediately}
	create(t, claim)
	eventually(t, "somebody's volume was noticed and given back", patience, func(ctx context.Context) error {
		p, err := populationOf(ctx, ns, "claim")
		if err != nil {
			return err
		}
		if p.Status.Result == nil || p.Status.Result.Reason != v1alpha1.ReasonPrimeBoundToForeign {
			return fmt.Errorf("its result is %+v", p.Status.Result)
		}
		return available(ctx, theirs)
	})
	// Out of the scheduler's way it goes, and the next attempt succeeds.
	after := stat(t, ns, "after", class, theirs)
	if after != before {
		t.Errorf("owner, mode and time of somebody's volume were %q and are %q", before, after)
	}
	completed(t, ns, "claim")
	settled(t, ns, "claim")
	pod := reader(ns, "claim", "runs", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "started\n")
}

// waitingClass makes a class that waits for consumers, for one test alone.
func waitingClass(t *testing.T, name string) string {
	t.Helper()
	mode, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver.Name, VolumeBindingMode: &mode, ReclaimPolicy: &policy,
	}
	create(t, class)
	t.Cleanup(func() {
		if err := kube.Delete(context.WithoutCancel(t.Context()), class); err != nil {
			t.Error(err)
		}
	})
	return name
}

// abandoned makes a volume that somebody wrote to and nobody claims any more.
func abandoned(t *testing.T, ns, class string) string {
	t.Helper()
	claim := claimFor(ns, "theirs", class, corev1.PersistentVolumeFilesystem, "", "", "")
	claim.Spec.DataSourceRef = nil
	create(t, claim)
	pod := reader(ns, "theirs", "", corev1.PersistentVolumeFilesystem)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo precious > /volume/file; chmod 0755 /volume"}
	create(t, pod)
	prints(t, pod, "")
	claim, err := get(t.Context(), ns, "theirs", claim)
	if err != nil {
		t.Fatal(err)
	}
	volume := claim.Spec.VolumeName
	patchVolume(t, volume, `{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)
	release(t, pod, claim, volume)
	return volume
}

// release deletes a Pod and its claim, and makes their volume Available.
func release(t *testing.T, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, volume string) {
	t.Helper()
	for _, o := range []client.Object{pod, claim} {
		if err := kube.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		eventually(t, o.GetName()+" is gone", patience, gone(o))
	}
	patchVolume(t, volume, `{"spec": {"claimRef": null}}`)
}

func patchVolume(t *testing.T, name, patch string) {
	t.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := kube.Patch(t.Context(), v, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func available(ctx context.Context, volume string) error {
	v, err := get(ctx, "", volume, &corev1.PersistentVolume{})
	if err != nil {
		return err
	}
	if v.Status.Phase != corev1.VolumeAvailable || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return fmt.Errorf("volume %q is %s, with policy %s", volume, v.Status.Phase, v.Spec.PersistentVolumeReclaimPolicy)
	}
	return nil
}

// stat claims a volume and returns who owns its root, its mode and when it was
// changed last, and what is in its file. A second time the volume stays with
// the claim, until the test ends.
func stat(t *testing.T, ns, name, class, volume string) string {
	t.Helper()
	claim := claimFor(ns, name, class, corev1.PersistentVolumeFilesystem, "", "", "")
	claim.Spec.DataSourceRef, claim.Spec.VolumeName = nil, volume
	create(t, claim)
	pod := reader(ns, name, "", corev1.PersistentVolumeFilesystem)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "stat -c '%u:%g %a %z' /volume; cat /volume/file"}
	create(t, pod)
	eventually(t, "volume can be looked at", patience, func(ctx context.Context) error {
		p, err := get(ctx, ns, pod.Name, &corev1.Pod{})
		if err == nil && p.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("pod is %s", p.Status.Phase)
		}
		return err
	})
	out, err := podLog(t.Context(), ns, pod.Name, 100)
	if err != nil {
		t.Fatal(err)
	}
	if name == "before" {
		claim, err = get(t.Context(), ns, name, claim)
		if err != nil {
			t.Fatal(err)
		}
		release(t, pod, claim, volume)
		eventually(t, "volume is Available", patience, func(ctx context.Context) error { return available(ctx, volume) })
		return out
	}
	patchVolume(t, volume, `{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}`)
	return out
}
