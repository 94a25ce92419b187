// Package kinds watches kinds that may be missing, unreadable or gone again:
// the source kinds of Populators and the optional kinds of other projects.
//
// A kind that cannot be read is a state that callers can ask for, never an
// error that stops the process; it is tried again with back-off and whenever
// somebody says that the kinds of the cluster have changed.
package kinds

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// Depth is how much of each object a watch keeps in memory.
type Depth int

// The depths.
const (
	// Metadata keeps the metadata only, as *metav1.PartialObjectMetadata.
	Metadata Depth = iota
	// Full keeps whole objects, as *unstructured.Unstructured.
	Full
)

// Status is whether a kind can be read now.
type Status int

// The statuses of a kind.
const (
	// Unwatched: nobody asked for the kind.
	Unwatched Status = iota
	// Starting: the first list is not complete; listeners are told when it is.
	Starting
	// Readable: look-ups answer from a synchronised store.
	Readable
	// NotReadable: the kind does not exist or may not be read.
	NotReadable
)

// State is the status of a kind and, if it is NotReadable, the API server's
// reason.
type State struct {
	Status Status
	Detail string
}

// Change says that an object came, changed or went, or, with an empty Name,
// that the state of the whole kind changed.
type Change struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// Listener is called for every change, from several goroutines; it must not
// block.
type Listener func(Change)

// Registry watches any number of kinds.
type Registry struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface
	mapper   meta.RESTMapper
	log      logr.Logger
	backoff  backoff

	mu        sync.RWMutex
	ctx       context.Context //nolint:containedctx // the life of Start, which Watch has to outlive its caller with
	watches   map[schema.GroupKind]*watch
	listeners []Listener
	running   sync.WaitGroup
}

// New returns a Registry that watches nothing yet.
func New(d dynamic.Interface, m metadata.Interface, mapper meta.RESTMapper, log logr.Logger) *Registry {
	return &Registry{
		dynamic: d, metadata: m, mapper: mapper, log: log,
		backoff: backoff{first: time.Second, limit: 15 * time.Second},
		watches: map[schema.GroupKind]*watch{},
	}
}

// Start runs the watches until ctx ends and returns when all of them have
// stopped.
func (r *Registry) Start(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	for _, w := range r.watches {
		r.run(w)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.running.Wait()
	return nil
}

// NeedLeaderElection says that the watches also run on replicas that do not
// lead, so that these take over with warm caches.
func (r *Registry) NeedLeaderElection() bool { return false }

// Listen adds a listener. It is told of later changes only.
func (r *Registry) Listen(l Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, l)
}

// Watch begins to watch a kind, if it is not watched yet.
func (r *Registry) Watch(kind schema.GroupKind, depth Depth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.watches[kind]; ok {
		return
	}
	w := newWatch(kind, depth)
	r.watches[kind] = w
	if r.ctx != nil && r.ctx.Err() == nil {
		r.run(w)
	}
}

// Forget stops watching a kind and drops what was known of it.
func (r *Registry) Forget(kind schema.GroupKind) {
	r.mu.Lock()
	w, ok := r.watches[kind]
	delete(r.watches, kind)
	r.mu.Unlock()
	if ok {
		close(w.stop)
		r.notify(Change{Kind: kind})
	}
}

// Watched lists the kinds that are watched.
func (r *Registry) Watched() []schema.GroupKind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]schema.GroupKind, 0, len(r.watches))
	for k := range r.watches {
		out = append(out, k)
	}
	return out
}

// KindsChanged makes the kinds that cannot be read be tried again now, for
// example because a CustomResourceDefinition of the group appeared.
func (r *Registry) KindsChanged(group string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for kind, w := range r.watches {
		if kind.Group == group {
			w.retryNow()
		}
	}
}

// State returns the state of a kind.
func (r *Registry) State(kind schema.GroupKind) State {
	if w := r.watch(kind); w != nil {
		return w.current()
	}
	return State{}
}

// Get returns an object from the watch of its kind, nil if there is none, and
// the state of the kind: without Readable a nil object means nothing. The
// object is shared and must not be changed. The namespace is ignored for
// kinds that have none.
func (r *Registry) Get(kind schema.GroupKind, namespace, name string) (metav1.Object, State) {
	w := r.watch(kind)
	if w == nil {
		return nil, State{}
	}
	return w.get(namespace, name)
}

// List returns all objects of a watched kind, shared like those of Get.
func (r *Registry) List(kind schema.GroupKind) ([]metav1.Object, State) {
	w := r.watch(kind)
	if w == nil {
		return nil, State{}
	}
	return w.list()
}

// Fetch reads a whole object from the API server.
func (r *Registry) Fetch(ctx context.Context, kind schema.GroupKind, namespace, name string) (*unstructured.Unstructured, error) {
	mapping, err := r.mapper.RESTMapping(kind)
	if err != nil {
		return nil, fmt.Errorf("look up kind %q: %w", kind, err)
	}
	var from dynamic.ResourceInterface = r.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		from = r.dynamic.Resource(mapping.Resource).Namespace(namespace)
	}
	obj, err := from.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get %s %q: %w", kind.Kind, namespace+"/"+name, err)
	}
	return obj, nil
}

func (r *Registry) watch(kind schema.GroupKind) *watch {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.watches[kind]
}

// run starts the goroutine of one watch; the caller holds the lock.
func (r *Registry) run(w *watch) {
	ctx := r.ctx
	r.running.Go(func() {
		defer utilruntime.HandleCrashWithContext(ctx)
		r.keep(ctx, w)
	})
}

func (r *Registry) notify(c Change) {
	r.mu.RLock()
	listeners := r.listeners
	r.mu.RUnlock()
	for _, l := range listeners {
		l(c)
	}
}
