package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestReadOnlyMany fills a volume that nobody may write to, where the Populator
// says that its claims may be such: Pods read it side by side. Where it does not
// say so, the claim says what to do.
func TestReadOnlyMany(t *testing.T) {
	t.Parallel()
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "exhibit.yaml"))
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/exhibit", "--timeout=30s")
	ns := space(t)
	readOnly := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}

	create(t, source(groupTest, "Exhibit", ns, map[string]any{"text": "do not touch"}))
	claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Exhibit", "src")
	claim.Spec.AccessModes = readOnly
	create(t, claim)
	claim = settled(t, ns, "claim")
	pv, err := get(t.Context(), "", claim.Spec.VolumeName, &corev1.PersistentVolume{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pv.Spec.AccessModes, readOnly) || !slices.Equal(claim.Status.AccessModes, readOnly) {
		t.Errorf("the volume has access modes %q and the claim %q, want %q", pv.Spec.AccessModes, claim.Status.AccessModes, readOnly)
	}
	quiet(t, ns, waitedForNobody)
	pods := make([]*corev1.Pod, 2)
	for i := range pods {
		pods[i] = reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
		pods[i].Name = []string{"first", "second"}[i]
		pods[i].Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		create(t, pods[i])
	}
	for _, pod := range pods {
		prints(t, pod, "do not touch\n")
	}

	create(t, source(groupTest, "Delay", ns, map[string]any{"seconds": 0, "text": "done"}))
	refused := claimFor(ns, "refused", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Delay", "src")
	refused.Spec.AccessModes = readOnly
	create(t, refused)
	reason(t, ns, "refused", v1alpha1.ReasonUnsupportedAccessMode)
}
