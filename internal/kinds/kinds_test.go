package kinds

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	testGVK      = schema.GroupVersionKind{Group: "hello.k8s.io", Version: "v1", Kind: "Hello"}
	testKind     = testGVK.GroupKind()
	testResource = schema.GroupVersionResource{Group: "hello.k8s.io", Version: "v1", Resource: "hellos"}
)

// lateMapper knows the kind from some moment on.
type lateMapper struct {
	meta.RESTMapper
	mu    sync.Mutex
	known bool
}

func (m *lateMapper) know(known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = known
}

func (m *lateMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

// bench is a running Registry on fake clients.
type bench struct {
	*Registry
	mapper   *lateMapper
	dynamic  *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient
	changes  chan Change
}

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{testGVK.GroupVersion()})
	mapper.Add(testGVK, meta.RESTScopeNamespace)
	b := &bench{mapper: &lateMapper{RESTMapper: mapper, known: true}, changes: make(chan Change, 100)}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{testResource: "HelloList"}, objects...)
	b.metadata = metadatafake.NewSimpleMetadataClient(scheme)
	b.Registry = New(b.dynamic, b.metadata, b.mapper, logr.Discard())
	b.Registry.backoff = backoff{first: time.Hour, limit: time.Hour}
	b.Listen(func(c Change) { b.changes <- c })
	return b
}

func (b *bench) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Start(ctx) // returns nil when ctx ends
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// next is the next change that listeners are told.
func (b *bench) next(t *testing.T) Change {
	t.Helper()
	select {
	case c := <-b.changes:
		return c
	case <-time.After(10 * time.Second):
		t.Fatalf("no change was told; the state is %+v", b.State(testKind))
		return Change{}
	}
}

func hello(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(testGVK)
	u.SetNamespace("ns")
	u.SetName(name)
	return u
}

func TestKindThatAppearsLate(t *testing.T) {
	b := newBench(t, hello("a"))
	b.mapper.know(false)
	b.Watch(testKind, Full)
	if got := b.State(testKind).Status; got != Starting {
		t.Errorf("before the start the kind is %v, want starting", got)
	}
	b.start(t)
	if c := b.next(t); c != (Change{Kind: testKind}) || b.State(testKind).Status != NotReadable || b.State(testKind).Detail == "" {
		t.Fatalf("told %+v, state %+v", c, b.State(testKind))
	}
	if o, s := b.Get(testKind, "ns", "a"); o != nil || s.Status != NotReadable {
		t.Errorf("got %v in state %+v", o, s)
	}

	b.mapper.know(true)
	b.KindsChanged("other.group")
	b.KindsChanged(testKind.Group)
	if c := b.next(t); c != (Change{Kind: testKind}) || b.State(testKind) != (State{Status: Readable}) {
		t.Fatalf("told %+v, state %+v", c, b.State(testKind))
	}
	if o, _ := b.Get(testKind, "ns", "a"); o == nil || o.GetName() != "a" {
		t.Errorf("got %v, want the object", o)
	}
	if o, s := b.Get(testKind, "other", "a"); o != nil || s.Status != Readable {
		t.Errorf("got %v in state %+v, want nothing for certain", o, s)
	}
	if all, _ := b.List(testKind); len(all) != 1 {
		t.Errorf("listed %d objects, want 1", len(all))
	}
}

func TestChangesOfObjectsAreTold(t *testing.T) {
	b := newBench(t)
	b.Watch(testKind, Full)
	b.Watch(testKind, Full) // twice is once
	b.start(t)
	b.next(t)
	if _, err := b.dynamic.Resource(testResource).Namespace("ns").Create(t.Context(), hello("late"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, want := b.next(t), (Change{Kind: testKind, Namespace: "ns", Name: "late"}); c != want {
		t.Errorf("told %+v, want %+v", c, want)
	}
	if err := b.dynamic.Resource(testResource).Namespace("ns").Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, want := b.next(t), (Change{Kind: testKind, Namespace: "ns", Name: "late"}); c != want {
		t.Errorf("told %+v, want %+v", c, want)
	}
}

func TestKindThatMayNotBeRead(t *testing.T) {
	b := newBench(t)
	b.metadata.PrependReactor("list", "hellos", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(testResource.GroupResource(), "", nil)
	})
	b.Watch(testKind, Metadata)
	b.start(t)
	b.next(t)
	if s := b.State(testKind); s.Status != NotReadable || s.Detail == "" {
		t.Errorf("state is %+v, want the server's reason", s)
	}
}

func TestForgottenKind(t *testing.T) {
	b := newBench(t)
	b.Watch(testKind, Full)
	b.start(t)
	b.next(t)
	b.Forget(testKind)
	b.Forget(testKind) // twice is once
	if c := b.next(t); c != (Change{Kind: testKind}) {
		t.Errorf("told %+v", c)
	}
	if s := b.State(testKind); s.Status != Unwatched || len(b.Watched()) != 0 {
		t.Errorf("state is %+v, watched are %v", s, b.Watched())
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{first: time.Second, limit: 15 * time.Second}
	for failures, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 15 * time.Second} {
		if got := b.after(failures); got != want {
			t.Errorf("after %d failures it waits %v, want %v", failures, got, want)
		}
	}
}
