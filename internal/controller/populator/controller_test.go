package populator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/registration"
)

// world is a cluster as a Controller sees it. Kinds read the VolumePopulators
// from the client, so that they are never behind, unless stale.
type world struct {
	t         *testing.T
	client    client.Client
	requests  []string
	fail      map[string]error
	stale     bool
	source    kinds.State
	defs      definition.Definition
	watched   []schema.GroupKind
	registers kinds.State
	plugin    *v1alpha1.PluginInfo
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{
		t: t, fail: map[string]error{}, defs: defined(t, helloSchema),
		source: kinds.State{Status: kinds.Readable}, registers: kinds.State{Status: kinds.Readable},
	}
	note := func(verb string, o client.Object) error {
		request := verb + " " + o.GetName()
		w.requests = append(w.requests, request)
		return w.fail[request]
	}
	w.client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Populator{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := note("create", o); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := note("delete", o); err != nil {
					return err
				}
				return c.Delete(ctx, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				if err := note("update "+sub, o); err != nil {
					return err
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		}).Build()
	return w
}

func (w *world) Watch(kind schema.GroupKind, _ kinds.Depth) { w.watched = append(w.watched, kind) }
func (w *world) State(schema.GroupKind) kinds.State         { return w.source }
func (w *world) Find(context.Context, schema.GroupKind) (definition.Definition, error) {
	return w.defs, w.fail["find"]
}

func (w *world) Ask(context.Context, *v1alpha1.Populator) (*v1alpha1.PluginInfo, error) {
	return w.plugin, w.fail["ask"]
}

func (w *world) List(schema.GroupKind) ([]metav1.Object, kinds.State) {
	if w.stale {
		return nil, w.registers
	}
	var out []metav1.Object
	for _, v := range w.registrations() {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, &unstructured.Unstructured{Object: content})
	}
	return out, w.registers
}

func (w *world) registrations() []v1beta1.VolumePopulator {
	w.t.Helper()
	var list v1beta1.VolumePopulatorList
	if err := w.client.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// reconcile reconciles a Populator and returns it as it is then.
func (w *world) reconcile(name string) (*v1alpha1.Populator, error) {
	w.t.Helper()
	p := w.get(name)
	_, err := New(w.client, w.client, w, w, w, func() time.Time { return time.Unix(1000, 0) }).Reconcile(w.t.Context(), p)
	return w.get(name), err
}

func (w *world) mustReconcile(name string) *v1alpha1.Populator {
	w.t.Helper()
	p, err := w.reconcile(name)
	if err != nil {
		w.t.Fatalf("Reconcile %q: %v", name, err)
	}
	return p
}

func (w *world) get(name string) *v1alpha1.Populator {
	w.t.Helper()
	p := &v1alpha1.Populator{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) mustHaveRegistered(names ...string) {
	w.t.Helper()
	var got []string
	for _, v := range w.registrations() {
		if registration.Ours(&v) {
			got = append(got, v.Name)
		}
	}
	if diff := cmp.Diff(names, got); diff != "" {
		w.t.Errorf("VolumePopulators of ours: -want, +got:\n%s", diff)
	}
}

func accepted(t *testing.T, p *v1alpha1.Populator) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil {
		t.Fatalf("Populator %q has no condition Accepted", p.Name)
	}
	if c.ObservedGeneration != p.Generation || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("condition speaks of generation %d, status of %d, want %d", c.ObservedGeneration, p.Status.ObservedGeneration, p.Generation)
	}
	return *c
}

func TestAcceptedIsRegistered(t *testing.T) {
	w := newWorld(t, hello("hello"))
	p := w.mustReconcile("hello")
	if c := accepted(t, p); c.Status != metav1.ConditionTrue {
		t.Errorf("Accepted: %+v, want True", c)
	}
	w.mustHaveRegistered("hello")
	if got, want := w.registrations()[0].SourceKind, (metav1.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}); got != want {
		t.Errorf("registered kind %v, want %v", got, want)
	}
	if !metav1.IsControlledBy(&w.registrations()[0], p) {
		t.Error("the VolumePopulator is not owned by the Populator")
	}
	if diff := cmp.Diff([]schema.GroupKind{registration.KindOf(p)}, w.watched); diff != "" {
		t.Errorf("watched kinds: -want, +got:\n%s", diff)
	}
}

func TestSettledPopulatorGetsNoRequest(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.mustReconcile("hello")
	w.requests = nil
	w.mustReconcile("hello")
	if len(w.requests) > 0 {
		t.Errorf("a second look made requests %v, want none", w.requests)
	}
}

func TestVerdictThatChanges(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.mustReconcile("hello")
	w.source = kinds.State{Status: kinds.NotReadable, Detail: "hellos is forbidden"}
	if c := accepted(t, w.mustReconcile("hello")); c.Reason != v1alpha1.ReasonSourceKindNotReadable {
		t.Errorf("Accepted: %+v, want SourceKindNotReadable", c)
	}
	w.mustHaveRegistered()
	w.source = kinds.State{Status: kinds.Readable}
	if c := accepted(t, w.mustReconcile("hello")); c.Status != metav1.ConditionTrue {
		t.Errorf("Accepted: %+v, want True again", c)
	}
	w.mustHaveRegistered("hello")
}

func TestNoVerdictNoWrite(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.source = kinds.State{Status: kinds.Starting}
	p := w.mustReconcile("hello")
	if len(p.Status.Conditions) > 0 || len(w.requests) > 0 {
		t.Errorf("conditions %v and requests %v while kinds are being read, want none", p.Status.Conditions, w.requests)
	}
}

func TestOldestServes(t *testing.T) {
	younger := hello("a", func(p *v1alpha1.Populator) { p.CreationTimestamp = metav1.Unix(200, 0) })
	older := hello("b", func(p *v1alpha1.Populator) { p.CreationTimestamp = metav1.Unix(100, 0) })
	w := newWorld(t, younger, older)
	w.mustReconcile("b")
	if c := accepted(t, w.mustReconcile("a")); c.Reason != v1alpha1.ReasonConflictingPopulator {
		t.Errorf("Accepted of the younger: %+v, want ConflictingPopulator", c)
	}
	w.mustHaveRegistered("b")
	if err := w.client.Delete(t.Context(), w.get("b")); err != nil {
		t.Fatal(err)
	}
	if c := accepted(t, w.mustReconcile("a")); c.Status != metav1.ConditionTrue {
		t.Errorf("Accepted of the younger once it is alone: %+v, want True", c)
	}
}

func TestForeignRegistration(t *testing.T) {
	foreign := &v1beta1.VolumePopulator{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, SourceKind: metav1.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}}
	w := newWorld(t, hello("hello"), foreign)
	if c := accepted(t, w.mustReconcile("hello")); c.Reason != v1alpha1.ReasonConflictingPopulator {
		t.Errorf("Accepted: %+v, want ConflictingPopulator", c)
	}
	p := w.get("hello")
	p.Spec.ReplacesExisting = true
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if c := accepted(t, w.mustReconcile("hello")); c.Status != metav1.ConditionTrue {
		t.Errorf("Accepted with replacesExisting: %+v, want True", c)
	}
	// Theirs has our name: it is left alone and ours gets another.
	w.mustHaveRegistered("hello-uid-hello")
}

func TestRegistrationUnderStaleCache(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.stale = true
	w.mustReconcile("hello")
	w.mustReconcile("hello")
	w.mustHaveRegistered("hello")
}

func TestEditedRegistrationIsMadeAnew(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.mustReconcile("hello")
	v := w.registrations()[0]
	v.SourceKind.Kind = "Other"
	if err := w.client.Update(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile("hello") // deletes, and its deletion calls again
	w.mustReconcile("hello")
	w.mustHaveRegistered("hello")
	if got := w.registrations()[0].SourceKind.Kind; got != "Hello" {
		t.Errorf("registered kind %q, want Hello", got)
	}
}

func TestWithoutVolumePopulatorKind(t *testing.T) {
	w := newWorld(t, hello("hello"))
	w.registers = kinds.State{Status: kinds.NotReadable, Detail: "no matches"}
	if c := accepted(t, w.mustReconcile("hello")); c.Status != metav1.ConditionTrue {
		t.Errorf("Accepted: %+v, want True", c)
	}
	w.mustHaveRegistered()
}

func TestFailingRequests(t *testing.T) {
	boom := errors.New("boom")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "populators"}, "hello", boom)
	cases := map[string]struct {
		reason  string
		request string
		err     error
		want    error
	}{
		"Status":           {"A refused status is tried again.", "update status hello", boom, boom},
		"StatusConflict":   {"A conflict is not: the change is told.", "update status hello", conflict, nil},
		"Register":         {"A refused registration is tried again.", "create hello", boom, boom},
		"DefinitionLookUp": {"A kind that cannot be looked up is tried again.", "find", boom, boom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, hello("hello"))
			w.fail[tc.request] = tc.err
			if _, err := w.reconcile("hello"); !errors.Is(err, tc.want) {
				t.Fatalf("%s\nReconcile: %v, want %v", tc.reason, err, tc.want)
			}
			clear(w.fail)
			if c := accepted(t, w.mustReconcile("hello")); c.Status != metav1.ConditionTrue {
				t.Errorf("%s\nAccepted after the failure has passed: %+v, want True", tc.reason, c)
			}
			w.mustHaveRegistered("hello")
		})
	}
}

func TestDeletedPopulatorIsLeftAlone(t *testing.T) {
	p := hello("hello", func(p *v1alpha1.Populator) {
		p.Finalizers = []string{"someone.example/else"}
		now := metav1.Now()
		p.DeletionTimestamp = &now
	})
	w := newWorld(t, p)
	w.mustReconcile("hello")
	if len(w.requests) > 0 {
		t.Errorf("requests %v for a Populator on its way out, want none", w.requests)
	}
}
