package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var now = time.Unix(10_000, 0)

func cache(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	populator := &v1alpha1.Populator{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
	populator.Spec.SourceKind = v1alpha1.SourceKind{Group: "demo", Kind: "Hello"}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, populator)...).Build()
}

func collector(t *testing.T, leads bool, objects ...client.Object) *Collector {
	t.Helper()
	leading := make(chan struct{})
	if leads {
		close(leading)
	}
	return NewCollector(cache(t, objects...), leading, func() time.Time { return now })
}

// population is one that was created some time ago.
func population(name string, age time.Duration, attempt int32, s v1alpha1.PopulationStatus) *v1alpha1.Population {
	return &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Spec:       v1alpha1.PopulationSpec{Attempt: attempt}, Status: s,
	}
}

func TestWhereClaimsAre(t *testing.T) {
	c := collector(t, true,
		population("a", time.Minute, 0, status(v1alpha1.PhaseWaiting, v1alpha1.ReasonSourceNotFound)),
		population("b", time.Hour, 0, status(v1alpha1.PhaseWaiting, v1alpha1.ReasonSourceNotFound)),
		population("c", time.Second, 0, status(v1alpha1.PhaseWaiting, v1alpha1.ReasonWaitingForSlot)),
		population("d", time.Second, 1, status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted)),
		population("e", time.Second, 1, status(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)),
		population("f", time.Second, 6, status(v1alpha1.PhaseFailed, v1alpha1.ReasonDigestMismatch)),
		// One whose first seconds are not written down; its claim knows the kind.
		population("g", time.Second, 1, v1alpha1.PopulationStatus{}),
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"},
			Spec:       corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("demo"), Kind: "Hello", Name: "h"}},
		},
	)
	want := `
# HELP sluice_claims Claims with a Population, by phase and source kind.
# TYPE sluice_claims gauge
sluice_claims{phase="Binding",source_kind="Hello.demo"} 0
sluice_claims{phase="Failed",source_kind="Hello.demo"} 1
sluice_claims{phase="Populating",source_kind="Hello.demo"} 1
sluice_claims{phase="Provisioning",source_kind="Hello.demo"} 1
sluice_claims{phase="Succeeded",source_kind="Hello.demo"} 1
sluice_claims{phase="Waiting",source_kind="Hello.demo"} 3
# HELP sluice_claims_failed Claims in phase Failed, for which no further attempt is made, by reason and source kind.
# TYPE sluice_claims_failed gauge
sluice_claims_failed{reason="DigestMismatch",source_kind="Hello.demo"} 1
# HELP sluice_claims_waiting Claims in phase Waiting, by reason and source kind.
# TYPE sluice_claims_waiting gauge
sluice_claims_waiting{reason="SourceNotFound",source_kind="Hello.demo"} 2
sluice_claims_waiting{reason="WaitingForSlot",source_kind="Hello.demo"} 1
# HELP sluice_oldest_waiting_claim_age_seconds Age of the oldest Population in phase Waiting, by the reason that it has now.
# TYPE sluice_oldest_waiting_claim_age_seconds gauge
sluice_oldest_waiting_claim_age_seconds{reason="SourceNotFound"} 3600
sluice_oldest_waiting_claim_age_seconds{reason="WaitingForSlot"} 1
# HELP sluice_populations_in_flight Claims whose prime or worker exists, or that are being bound: the phases Provisioning, Populating and Binding.
# TYPE sluice_populations_in_flight gauge
sluice_populations_in_flight 2
# HELP sluice_queue_depth Claims that wait for nothing but their turn: reason WaitingForSlot.
# TYPE sluice_queue_depth gauge
sluice_queue_depth 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeftInFlight shows that a figure goes with the claim: it is no
// sum of what was counted before.
func TestNothingIsLeftInFlight(t *testing.T) {
	p := population("a", time.Minute, 1, status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted))
	from := cache(t, p)
	leading := make(chan struct{})
	close(leading)
	c := NewCollector(from, leading, func() time.Time { return now })
	for _, n := range []int{1, 0} {
		want := fmt.Sprintf(`
# HELP sluice_populations_in_flight Claims whose prime or worker exists, or that are being bound: the phases Provisioning, Populating and Binding.
# TYPE sluice_populations_in_flight gauge
sluice_populations_in_flight %d
`, n)
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "sluice_populations_in_flight"); err != nil {
			t.Error(err)
		}
		if n > 0 {
			if err := from.Delete(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOnlyTheLeaderTells(t *testing.T) {
	c := collector(t, false, population("a", time.Minute, 1, status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted)))
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("a replica that does not lead tells %d figures", n)
	}
}

func TestRegisterAgain(t *testing.T) {
	for range 2 {
		if err := Register(collector(t, false)); err != nil {
			t.Fatal(err)
		}
	}
}
