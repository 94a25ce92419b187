package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
