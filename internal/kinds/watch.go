package kinds

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// watch is the watch of one kind: a loop of "can it be read? then watch it
// until it cannot".
type watch struct {
	kind  schema.GroupKind
	depth Depth
	stop  chan struct{}
	retry chan struct{}

	mu         sync.RWMutex
	state      State
	namespaced bool
	store      cache.Store
}

func newWatch(kind schema.GroupKind, depth Depth) *watch {
	return &watch{
		kind: kind, depth: depth,
		stop:  make(chan struct{}),
		retry: make(chan struct{}, 1),
		state: State{Status: Starting},
	}
}

func (w *watch) retryNow() {
	select {
	case w.retry <- struct{}{}:
	default:
	}
}

func (w *watch) current() State {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.state
}

func (w *watch) get(namespace, name string) (metav1.Object, State) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.state.Status != Readable {
		return nil, w.state
	}
	key := name
	if w.namespaced {
		key = namespace + "/" + name
	}
	item, ok, err := w.store.GetByKey(key)
	if err != nil || !ok {
		return nil, w.state
	}
	obj, _ := item.(metav1.Object) // every item of an informer's store is an object
	return obj, w.state
}

func (w *watch) list() ([]metav1.Object, State) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.state.Status != Readable {
		return nil, w.state
	}
	items := w.store.List()
	out := make([]metav1.Object, 0, len(items))
	for _, item := range items {
		if obj, ok := item.(metav1.Object); ok {
			out = append(out, obj)
		}
	}
	return out, w.state
}

// keep watches the kind until ctx ends or the watch is forgotten.
func (r *Registry) keep(ctx context.Context, w *watch) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for failures := 0; ctx.Err() == nil; failures++ {
		readable, err := r.watchOnce(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if readable {
			failures = 0
		}
		r.become(w, State{Status: NotReadable, Detail: err.Error()}, nil, false)
		select {
		case <-ctx.Done():
		case <-w.retry:
			// A new definition is served a moment after it is announced.
			failures = -1
		case <-time.After(r.backoff.after(failures)):
		}
	}
}

// watchOnce watches the kind for as long as it can be read, and returns
// whether it ever could and why it no longer can.
func (r *Registry) watchOnce(ctx context.Context, w *watch) (readable bool, err error) {
	mapping, err := r.mapper.RESTMapping(w.kind)
	if err != nil {
		return false, fmt.Errorf("look up kind %q: %w", w.kind, err)
	}
	// A list of one tells a kind that cannot be read from one that is slow.
	if _, err := r.metadata.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return false, fmt.Errorf("list %s: %w", mapping.Resource.GroupResource(), err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	informer := r.informer(mapping.Resource, w.depth)
	if err := informer.SetTransform(dropManagedFields); err != nil {
		return false, fmt.Errorf("prepare watch of %q: %w", w.kind, err)
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, rf *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			cancel(fmt.Errorf("watch %s: %w", mapping.Resource.GroupResource(), err))
			return
		}
		cache.DefaultWatchErrorHandler(ctx, rf, err)
	}); err != nil {
		return false, fmt.Errorf("prepare watch of %q: %w", w.kind, err)
	}
	if _, err := informer.AddEventHandler(r.handler(w)); err != nil {
		return false, fmt.Errorf("prepare watch of %q: %w", w.kind, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		readable = true
		r.become(w, State{Status: Readable}, informer.GetStore(), mapping.Scope.Name() == meta.RESTScopeNameNamespace)
	}
	<-ctx.Done()
	<-done
	return readable, context.Cause(ctx)
}

func (r *Registry) informer(resource schema.GroupVersionResource, depth Depth) cache.SharedIndexInformer {
	if depth == Full {
		return dynamicinformer.NewFilteredDynamicInformer(r.dynamic, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	}
	return metadatainformer.NewFilteredMetadataInformer(r.metadata, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
}

// dropManagedFields keeps what nobody here reads out of memory.
func dropManagedFields(item any) (any, error) {
	if obj, ok := item.(metav1.Object); ok {
		obj.SetManagedFields(nil)
	}
	return item, nil
}

// handler passes changes on. What the first list brings is not told one by one:
// become tells that the kind is readable.
func (r *Registry) handler(w *watch) cache.ResourceEventHandler {
	tell := func(item any) {
		if gone, ok := item.(cache.DeletedFinalStateUnknown); ok {
			item = gone.Obj
		}
		if obj, ok := item.(metav1.Object); ok {
			r.notify(Change{Kind: w.kind, Namespace: obj.GetNamespace(), Name: obj.GetName()})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if !isInInitialList {
				tell(obj)
			}
		},
		UpdateFunc: func(_, obj any) { tell(obj) },
		DeleteFunc: tell,
	}
}

// become sets the state of a watch, and tells the listeners if it changed.
func (r *Registry) become(w *watch, s State, store cache.Store, namespaced bool) {
	w.mu.Lock()
	changed := w.state != s
	w.state, w.store, w.namespaced = s, store, namespaced
	w.mu.Unlock()
	if !changed {
		return
	}
	switch s.Status {
	case Readable:
		r.log.Info("kind is readable", "kind", w.kind.String())
	case NotReadable:
		r.log.Info("kind is not readable", "kind", w.kind.String(), "reason", s.Detail)
	case Unwatched, Starting:
	}
	r.notify(Change{Kind: w.kind})
}

// backoff doubles from first to limit.
type backoff struct{ first, limit time.Duration }

func (b backoff) after(failures int) time.Duration {
	d := b.first
	for range failures {
		if d *= 2; d >= b.limit {
			return b.limit
		}
	}
	return d
}
