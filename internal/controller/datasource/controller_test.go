package datasource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/registration"
)

var helloKind = schema.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}

func waiting(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "uid-1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("hello.k8s.io"), Kind: "Hello", Name: "x"},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, c := range change {
		c(claim)
	}
	return claim
}

// bench runs a Controller on a claim, with a clock of its own.
type bench struct {
	t      *testing.T
	c      *Controller
	client client.Client
	events *events.FakeRecorder
	now    time.Time
	found  registration.Registration
	err    error
}

func (b *bench) Find(context.Context, schema.GroupKind) (registration.Registration, error) {
	return b.found, b.err
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left-alone", Labels: map[string]string{v1alpha1.LabelIgnore: "true"}}})
	b := &bench{
		t: t, client: fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build(), events: events.NewFakeRecorder(10),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), found: registration.Registration{Kind: helloKind, State: registration.Nobody},
	}
	b.c = New(b.client, b, &manager.Namespaces{Cache: b.client, Own: "sluice-system"}, b.events, func() time.Time { return b.now })
	return b
}

// run reconciles until the controller asks for no more and returns the events.
func (b *bench) run(namespace string) []string {
	b.t.Helper()
	for range 5 {
		r, err := b.c.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "claim"}})
		if err != nil {
			b.t.Fatalf("Reconcile: %v", err)
		}
		if r.RequeueAfter == 0 {
			break
		}
		b.now = b.now.Add(r.RequeueAfter)
	}
	var got []string
	for {
		select {
		case e := <-b.events.Events:
			got = append(got, e)
		default:
			return got
		}
	}
}

func TestWhoIsWarned(t *testing.T) {
	cases := map[string]struct {
		reason string
		claim  *corev1.PersistentVolumeClaim
		found  registration.Registration
		also   client.Object
		says   string // empty: no event
	}{
		"Nobody": {
			reason: "A claim of a kind that nobody registered is warned.",
			claim:  waiting(), found: registration.Registration{Kind: helloKind, State: registration.Nobody}, says: "Nobody fills claims with a data source of kind Hello.hello.k8s.io",
		},
		"NotAccepted": {
			reason: "The Populator that is wrong is named.",
			claim:  waiting(), found: registration.Registration{Kind: helloKind, State: registration.NotAccepted, Name: "hello", Reason: "TemplateInvalid"},
			says: `Populator "hello" for data sources of kind Hello.hello.k8s.io is not accepted (TemplateInvalid)`,
		},
		"Served":  {reason: "A claim that is served is not.", claim: waiting(), found: registration.Registration{State: registration.Served}},
		"Foreign": {reason: "Nor is one of another controller.", claim: waiting(), found: registration.Registration{State: registration.Foreign}},
		"Unknown": {reason: "In doubt nothing is said.", claim: waiting(), found: registration.Registration{State: registration.Unknown}},
		"Claim": {
			reason: "Another claim as a source is cloned by the CSI driver.",
			claim: waiting(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
			}),
			found: registration.Registration{State: registration.Nobody},
		},
		"Snapshot": {
			reason: "A snapshot is restored by it.",
			claim: waiting(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "x"}
			}),
			found: registration.Registration{State: registration.Nobody},
		},
		"NoSource": {
			reason: "A claim without a source asks for nothing.",
			claim:  waiting(func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = nil }), found: registration.Registration{State: registration.Nobody},
		},
		"Bound": {
			reason: "A claim that has a volume is never warned.",
			claim:  waiting(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv"; c.Status.Phase = corev1.ClaimBound }),
			found:  registration.Registration{State: registration.Nobody},
		},
		"Begun": {
			reason: "A claim whose population has begun is told by that.",
			claim:  waiting(), found: registration.Registration{State: registration.Nobody},
			also: &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}, Spec: v1alpha1.PopulationSpec{ClaimUID: "uid-1"}},
		},
		"BegunForAnother": {
			reason: "The Population of a former claim of that name does not count.",
			claim:  waiting(), found: registration.Registration{Kind: helloKind, State: registration.Nobody}, says: "Nobody",
			also: &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}, Spec: v1alpha1.PopulationSpec{ClaimUID: "uid-0"}},
		},
		"Ignored": {
			reason: "Sluice keeps out of a namespace that says so.",
			claim:  waiting(func(c *corev1.PersistentVolumeClaim) { c.Namespace = "left-alone" }), found: registration.Registration{State: registration.Nobody},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tc.claim}
			if tc.also != nil {
				objects = append(objects, tc.also)
			}
			b := newBench(t, objects...)
			b.found = tc.found
			got := b.run(tc.claim.Namespace)
			switch {
			case tc.says == "" && len(got) > 0:
				t.Errorf("%s\nevents %q, want none", tc.reason, got)
			case tc.says != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "Warning UnrecognizedDataSourceKind") || !strings.Contains(got[0], tc.says)):
				t.Errorf("%s\nevents %q, want one Warning UnrecognizedDataSourceKind that says %q", tc.reason, got, tc.says)
			}
		})
	}
}

func TestWarnedOncePerChange(t *testing.T) {
	b := newBench(t, waiting())
	if got := b.run("default"); len(got) != 1 {
		t.Fatalf("events %q, want one", got)
	}
	if got := b.run("default"); len(got) != 0 {
		t.Errorf("the same problem was told again: %q", got)
	}
	b.found = registration.Registration{Kind: helloKind, State: registration.NotAccepted, Name: "hello", Reason: "TemplateInvalid"}
	if got := b.run("default"); len(got) != 1 {
		t.Errorf("another problem: events %q, want one", got)
	}
	b.found = registration.Registration{Kind: helloKind, State: registration.Served, Name: "hello"}
	if got := b.run("default"); len(got) != 0 {
		t.Errorf("a problem that has passed: events %q, want none", got)
	}
	if len(b.c.known) != 0 {
		t.Errorf("%d claims are remembered, want none", len(b.c.known))
	}
	b.found = registration.Registration{Kind: helloKind, State: registration.Nobody}
	if got := b.run("default"); len(got) != 1 {
		t.Errorf("a problem that is back: events %q, want one", got)
	}
}

func TestAppliedTogether(t *testing.T) {
	b := newBench(t, waiting())
	r, err := b.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "claim"}})
	if err != nil || r.RequeueAfter <= 0 || r.RequeueAfter > grace {
		t.Fatalf("Reconcile: %+v, %v, want another look within %v", r, err, grace)
	}
	b.found = registration.Registration{Kind: helloKind, State: registration.Served, Name: "hello"}
	if got := b.run("default"); len(got) != 0 {
		t.Errorf("a claim that came a moment before its Populator: events %q, want none", got)
	}
}

func TestNewClaimUnderTheSameName(t *testing.T) {
	b := newBench(t, waiting())
	b.run("default")
	if err := b.client.Delete(t.Context(), waiting()); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Create(t.Context(), waiting(func(c *corev1.PersistentVolumeClaim) { c.UID = "uid-2" })); err != nil {
		t.Fatal(err)
	}
	if got := b.run("default"); len(got) != 1 {
		t.Errorf("another claim of the same name: events %q, want one", got)
	}
}

func TestGoneClaimIsForgotten(t *testing.T) {
	b := newBench(t, waiting())
	b.run("default")
	if err := b.client.Delete(t.Context(), waiting()); err != nil {
		t.Fatal(err)
	}
	if got := b.run("default"); len(got) != 0 || len(b.c.known) != 0 {
		t.Errorf("a claim that is gone: events %q, %d remembered, want none", got, len(b.c.known))
	}
}

func TestFailedLookUpIsTriedAgain(t *testing.T) {
	b := newBench(t, waiting())
	b.err = errors.New("boom")
	if _, err := b.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "claim"}}); !errors.Is(err, b.err) {
		t.Errorf("Reconcile: %v, want %v", err, b.err)
	}
}
