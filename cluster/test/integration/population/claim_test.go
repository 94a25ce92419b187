package population

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// TestBoundClaimIsLeftAlone restores claims together with their volumes, as
// backup tools do: their sources are missing, one's kind even has no populator,
// and nobody minds.
func TestBoundClaimIsLeftAlone(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	known, unknown := s.claim("known", simulate.ClassImmediate), s.claim("unknown", simulate.ClassImmediate)
	unknown.Spec.DataSourceRef.APIGroup = ptr.To("nobody.example")
	for _, claim := range []*corev1.PersistentVolumeClaim{known, unknown} {
		claim.Spec.VolumeName = s.namespace + "-" + claim.Name
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:         claim.Spec.Resources.Requests,
				AccessModes:      claim.Spec.AccessModes,
				StorageClassName: *claim.Spec.StorageClassName,
				ClaimRef:         &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: simulate.Driver, VolumeHandle: claim.Spec.VolumeName},
				},
			},
		}
		create(t, volume)
		create(t, claim)
		t.Cleanup(func() { gone(t, claim); gone(t, volume) })
		bound(t, claim, 20*time.Second)
	}
	// A claim made later is told to wait: the others have been seen long ago.
	later := s.claim("later", simulate.ClassImmediate)
	create(t, later)
	waits(t, later, v1alpha1.ReasonSourceNotFound, soon)
	for _, claim := range []*corev1.PersistentVolumeClaim{known, unknown} {
		var told corev1.EventList
		if err := kube.List(t.Context(), &told, client.InNamespace(s.namespace), client.MatchingFields{"involvedObject.uid": string(claim.UID)}); err != nil {
			t.Fatal(err)
		}
		for _, e := range told.Items {
			if strings.HasPrefix(e.ReportingController, "sluice.dev/") {
				t.Errorf("claim %q has event %s: %s", claim.Name, e.Reason, e.Message)
			}
		}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), &v1alpha1.Population{}); !apierrors.IsNotFound(err) {
			t.Errorf("claim %q has a record: %v", claim.Name, err)
		}
	}
}
