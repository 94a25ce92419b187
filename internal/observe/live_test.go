package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func recordOf(attempt int32) *v1alpha1.Population {
	return &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"},
		Spec:       v1alpha1.PopulationSpec{ClaimUID: testClaim, Attempt: attempt},
	}
}

func TestLiveReadsTheTemporariesOfTheLiveAttempt(t *testing.T) {
	first, second := populate.TemporaryName(testClaim, 1), populate.TemporaryName(testClaim, 2)
	ob, _ := world{live: []client.Object{
		claimOf(), recordOf(2),
		&corev1.PersistentVolumeClaim{ObjectMeta: temporary(first, true)},
		&corev1.PersistentVolumeClaim{ObjectMeta: temporary(second, true), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}},
		&corev1.Pod{ObjectMeta: temporary(second, true)},
		volumeOf("pv", nil, nil),
	}}.observer(t)
	o, err := ob.Deepen(t.Context(), populate.Observed{
		Namespace: "ns", Name: "claim", ClaimUID: testClaim, Claim: claimOf(), Population: recordOf(1),
	}, populate.NeedLive)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Primes) != 2 || len(o.Workers) != 1 || len(o.Volumes) != 1 {
		t.Errorf("%d primes, %d workers and %d volumes were found; the cached record knew nothing of the second attempt, want 2, 1 and 1",
			len(o.Primes), len(o.Workers), len(o.Volumes))
	}
}

func TestRenderJudgesWhatItRendersFrom(t *testing.T) {
	elsewhere := func(namespace string) *corev1.PersistentVolumeClaim {
		return claimOf(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: namespace}
		})
	}
	granted := populate.Source{State: populate.SourceFound, Namespace: "granting", Granted: true, UID: "source-uid", Generation: 2}
	cases := map[string]struct {
		why string
		// claim is the one that the worker would be made for.
		claim *corev1.PersistentVolumeClaim
		// reason is what the validations say of the source.
		reason     string
		want       populate.Source
		wantReason string
	}{
		"a namespace that grants nothing": {
			why:   "the annotation changed after the grant was judged",
			claim: elsewhere("ns-without-grant"),
			want:  populate.Source{Namespace: "ns-without-grant"}, wantReason: v1alpha1.ReasonNotGranted,
		},
		"the claim's own namespace": {
			why:   "there is no grant to ask for",
			claim: claimOf(),
			want:  populate.Source{State: populate.SourceFound, Namespace: "ns", UID: "source-uid", Generation: 3},
		},
		"a source that has become invalid": {
			why:   "the one that was judged before was older",
			claim: claimOf(), reason: v1alpha1.ReasonInvalidSource,
			want: populate.Source{State: populate.SourceFound, Namespace: "ns", UID: "source-uid", Generation: 3,
				Invalid: "it is wrong", InvalidReason: v1alpha1.ReasonInvalidSource},
			wantReason: v1alpha1.ReasonInvalidSource,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ob, _ := world{sources: []*unstructured.Unstructured{sourceObject()}, reason: tc.reason}.observer(t)
			o, err := ob.Deepen(t.Context(), populate.Observed{
				Namespace: "ns", Name: "claim", ClaimUID: testClaim, Claim: tc.claim, Population: recordOf(1),
				Populator: populatorOf("hello", 0, true), Source: granted,
			}, populate.NeedRender)
			if err != nil || o.Rendered == nil {
				t.Fatalf("rendered %+v, error %v", o.Rendered, err)
			}
			if diff := cmp.Diff(tc.want, o.Source); diff != "" {
				t.Errorf("%s: source (-want +got):\n%s", tc.why, diff)
			}
			if made := o.Rendered.Pod != nil; o.Rendered.Reason != tc.wantReason || made != (tc.wantReason == "") {
				t.Errorf("%s: reason is %q and a worker was rendered: %t; want %q", tc.why, o.Rendered.Reason, made, tc.wantReason)
			}
			if o.Rendered.Attempt != 1 {
				t.Errorf("rendered for attempt %d, want 1", o.Rendered.Attempt)
			}
		})
	}
}
