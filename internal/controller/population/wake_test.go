package population

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// wakerOver knows the claims given.
func wakerOver(claims ...client.Object) *waker {
	byUID := func(o client.Object) []string { return []string{string(o.GetUID())} }
	return &waker{log: logr.Discard(), cache: fake.NewClientBuilder().WithObjects(claims...).
		WithIndex(&corev1.PersistentVolumeClaim{}, observe.IndexClaimUID, byUID).Build()}
}

func known() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}}
}

func TestTemporaryWakes(t *testing.T) {
	pod := func(namespace, claim string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "sluice-u-1", Labels: map[string]string{v1alpha1.LabelClaimUID: "u"},
		}}
		if claim != "" {
			p.Annotations = map[string]string{v1alpha1.AnnotationClaim: claim}
		}
		return p
	}
	cases := map[string]struct {
		reason string
		claims []client.Object
		pod    *corev1.Pod
		want   []observe.Key
	}{
		"Known": {
			reason: "A worker wakes its claim",
			claims: []client.Object{known()}, pod: pod("ns", "ns/claim"),
			want: []observe.Key{key},
		},
		"Forged": {
			reason: "An annotation cannot have a claim that is known taken for gone",
			claims: []client.Object{known()}, pod: pod("other", "ns/no-such-claim"),
			want: []observe.Key{key},
		},
		"Gone": {
			reason: "Of a claim that is gone the annotation still knows the name",
			pod:    pod("ns", "ns/claim"),
			want:   []observe.Key{key},
		},
		"GoneNameless": {
			reason: "Without the annotation the UID is enough",
			pod:    pod("ns", ""),
			want:   []observe.Key{{Namespace: "ns", UID: "u"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wakerOver(tc.claims...).temporary(t.Context(), tc.pod)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestForeignVolumeWakes(t *testing.T) {
	volume := func(role string, ref *corev1.ObjectReference) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{v1alpha1.LabelClaimUID: "u", v1alpha1.LabelRole: role}},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: ref},
		}
	}
	cases := map[string]struct {
		reason string
		claims []client.Object
		volume *corev1.PersistentVolume
		want   []observe.Key
	}{
		"Known": {
			reason: "The claim that owes it gives it back",
			claims: []client.Object{known()}, volume: volume(populate.RoleForeign, nil),
			want: []observe.Key{key},
		},
		"GoneReleased": {
			reason: "A released volume still names the namespace, and its label the claim",
			volume: volume(populate.RoleForeign, &corev1.ObjectReference{Namespace: "ns", Name: populate.TemporaryName("u", 1)}),
			want:   []observe.Key{{Namespace: "ns", UID: "u"}},
		},
		"GoneAvailable": {
			reason: "Of a claim that is gone the UID is enough",
			volume: volume(populate.RoleForeign, nil),
			want:   []observe.Key{{UID: "u"}},
		},
		"GoneFilled": {
			reason: "A volume that was filled for a claim that is gone needs nothing",
			volume: volume(populate.RoleFilled, nil),
			want:   []observe.Key{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wakerOver(tc.claims...).volume(t.Context(), tc.volume)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
