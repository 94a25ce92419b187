package population

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

func numbered(n int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint("uid-", n)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(n), 0)),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("hello.k8s.io"), Kind: "Hello", Name: "example"},
		},
	}
}

// begun is the record of a claim whose first attempt was allocated.
func begun(n int, phase v1alpha1.Phase) *v1alpha1.Population {
	claim := numbered(n)
	return &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: claim.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID, Controller: ptr.To(true)}},
		},
		Spec:   v1alpha1.PopulationSpec{ClaimUID: claim.UID, Attempt: 1},
		Status: v1alpha1.PopulationStatus{Phase: phase},
	}
}

func seen(n int) populate.Observed {
	claim := numbered(n)
	return populate.Observed{Namespace: claim.Namespace, Name: claim.Name, ClaimUID: claim.UID, Claim: claim}
}

// ledgerOf returns a ledger over some objects, what it woke, and its clock.
func ledgerOf(t *testing.T, limits slots.Limits, list interceptor.Funcs, objects ...client.Object) (l *ledger, woken *[]string, advance func(time.Duration)) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(manager.Scheme()).WithObjects(objects...).WithInterceptorFuncs(list).Build()
	now := time.Unix(1000, 0)
	l = newLedger(limits, c, c, func() time.Time { return now })
	woken = &[]string{}
	l.Listen(func(keys []observe.Key) {
		for _, k := range keys {
			*woken = append(*woken, k.Name)
		}
	})
	var timers []func()
	l.after = func(_ time.Duration, do func()) { timers = append(timers, do) }
	return l, woken, func(d time.Duration) {
		now = now.Add(d)
		due := timers
		timers = nil
		for _, do := range due {
			do()
		}
	}
}

// ask says whether a claim is given its slots.
func ask(t *testing.T, l *ledger, n int) bool {
	t.Helper()
	v, err := l.Ask(t.Context(), seen(n))
	if err != nil {
		t.Fatal(err)
	}
	return v.Granted
}

func TestNewLeaderKnowsWhoHoldsSlots(t *testing.T) {
	l, woken, _ := ledgerOf(t, slots.Limits{Total: 2}, interceptor.Funcs{},
		numbered(1), begun(1, v1alpha1.PhasePopulating), numbered(2), begun(2, v1alpha1.PhaseProvisioning),
		numbered(3), begun(3, v1alpha1.PhaseSucceeded), begun(4, v1alpha1.PhasePopulating), // of a claim that is gone
		numbered(5))
	if ask(t, l, 5) {
		t.Fatal("a third claim is begun beside two that the leader before had begun")
	}
	done := seen(1)
	done.Population = begun(1, v1alpha1.PhaseSucceeded)
	l.Note(done)
	if d := cmp.Diff([]string{"5"}, *woken); d != "" {
		t.Errorf("woken when a slot is free (-want +got):\n%s", d)
	}
	if !ask(t, l, 5) {
		t.Error("the claim that was woken is refused")
	}
}

func TestLedgerGivesNoSlotBeforeItKnows(t *testing.T) {
	lost := errors.New("connection lost")
	fail := true
	l, _, _ := ledgerOf(t, slots.Limits{Total: 1}, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if fail {
				return lost
			}
			return c.List(ctx, list, opts...)
		},
	}, numbered(1))
	if _, err := l.Ask(t.Context(), seen(1)); !errors.Is(err, lost) {
		t.Fatalf("error = %v, want %v", err, lost)
	}
	fail = false
	if !ask(t, l, 1) {
		t.Error("nobody holds a slot, and still there is none")
	}
}

func TestSlotsComeBack(t *testing.T) {
	cases := map[string]struct {
		reason string
		noted  func(o populate.Observed) populate.Observed
	}{
		"deleted": {
			reason: "A claim that is deleted gives its slots back.",
			noted:  func(o populate.Observed) populate.Observed { o.Claim = nil; return o },
		},
		"something else": {
			reason: "So does one that came to wait for something else.",
			noted:  func(o populate.Observed) populate.Observed { return o },
		},
		"failed": {
			reason: "And one whose attempt has failed.",
			noted: func(o populate.Observed) populate.Observed {
				o.Population = begun(1, v1alpha1.PhaseWaiting)
				o.Population.Status.Result = &v1alpha1.Result{Attempt: 1}
				return o
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, woken, _ := ledgerOf(t, slots.Limits{Total: 1}, interceptor.Funcs{}, numbered(1), numbered(2))
			if !ask(t, l, 1) || ask(t, l, 2) {
				t.Fatal("want a slot for the first claim only")
			}
			o := seen(2)
			o.Slot = &slots.Verdict{}
			l.Note(o) // it stays in line
			l.Note(tc.noted(seen(1)))
			if d := cmp.Diff([]string{"2"}, *woken); d != "" {
				t.Errorf("%s\nwoken (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestClaimThatLeavesTheLineIsNotWoken(t *testing.T) {
	l, woken, _ := ledgerOf(t, slots.Limits{Total: 1}, interceptor.Funcs{}, numbered(1), numbered(2), numbered(3))
	if !ask(t, l, 1) || ask(t, l, 2) || ask(t, l, 3) {
		t.Fatal("want a slot for the first claim only")
	}
	gone := seen(2)
	gone.Claim = nil
	l.Note(gone)
	gone = seen(1)
	gone.Claim = nil
	l.Note(gone)
	if d := cmp.Diff([]string{"3"}, *woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}

func TestClaimsThatStandStillMakeRoom(t *testing.T) {
	l, woken, advance := ledgerOf(t, slots.Limits{Moving: 1}, interceptor.Funcs{}, numbered(1), numbered(2), numbered(3))
	if !ask(t, l, 1) || ask(t, l, 2) || ask(t, l, 3) {
		t.Fatal("want the first claim only to be begun")
	}
	working := seen(1)
	working.Population = begun(1, v1alpha1.PhasePopulating)
	l.Note(working)
	advance(slots.Settling)
	if d := cmp.Diff([]string{"2"}, *woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	advance(slots.Settling)
	if d := cmp.Diff([]string{"2", "3"}, *woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}
