package simulate

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// hands is how many keys one part works on at the same time.
const hands = 32

// worker calls do for every key that is added, one call per key at a time.
type worker struct {
	name  string
	queue workqueue.TypedRateLimitingInterface[string]
	// do brings one object on, and says when to look again; 0 for not.
	do func(ctx context.Context, key string) (time.Duration, error)
}

func newWorker(name string, do func(context.Context, string) (time.Duration, error)) *worker {
	return &worker{
		name: name, do: do,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second)),
	}
}

// handler adds the keys of objects that came or changed.
func (w *worker) handler() cache.ResourceEventHandler {
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			w.queue.Add(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range hands {
		running.Go(func() {
			for {
				key, ended := w.queue.Get()
				if ended {
					return
				}
				again, err := w.do(ctx, key)
				switch {
				case err != nil && ctx.Err() == nil:
					utilruntime.HandleErrorWithContext(ctx, err, "simulate "+w.name, "object", key)
					w.queue.AddRateLimited(key)
				case again > 0:
					w.queue.Forget(key)
					w.queue.AddAfter(key, again)
				default:
					w.queue.Forget(key)
				}
				w.queue.Done(key)
			}
		})
	}
	running.Wait()
}
