package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/observe"
)

// watcher takes down when what happened to the claims of one namespace.
type watcher struct {
	stop func()

	mu sync.Mutex
	// bound is when each claim was first seen Bound.
	bound map[types.UID]time.Time
	// ended is when the Pod of each claim's name was first seen Succeeded.
	ended map[string]time.Time
	// left counts what is there of each claim's temporaries, and clean is when
	// the last of them went.
	left  map[types.UID]int
	clean map[types.UID]time.Time
	pods  int
	// onBound, if set, is told of plain claims that are Bound.
	onBound func(*corev1.PersistentVolumeClaim)
}

// watch begins to watch a namespace. onBound may be nil.
func (b *bed) watch(ctx context.Context, namespace string, onBound func(*corev1.PersistentVolumeClaim)) (*watcher, error) {
	life, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(b.clients, 0, informers.WithNamespace(namespace))
	w := &watcher{
		bound: map[types.UID]time.Time{}, ended: map[string]time.Time{},
		left: map[types.UID]int{}, clean: map[types.UID]time.Time{}, onBound: onBound,
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().Pods().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.seen(o, true) },
			UpdateFunc: func(_, o any) { w.seen(o, false) },
			DeleteFunc: w.gone,
		}); err != nil {
			cancel()
			return nil, fmt.Errorf("watch namespace %q: %w", namespace, err)
		}
	}
	factory.Start(life.Done())
	factory.WaitForCacheSync(life.Done())
	w.stop = func() { cancel(); factory.Shutdown() }
	return w, nil
}

// watchPlain watches a namespace of plain claims and makes the Pod of each as
// soon as the claim is Bound.
func (b *bed) watchPlain(ctx context.Context, programs *observe.Programs, namespace string) (*watcher, error) {
	return b.watch(ctx, namespace, func(claim *corev1.PersistentVolumeClaim) {
		pod, err := b.pod(programs, claim)
		if err == nil {
			err = b.kube.Create(ctx, pod)
		}
		if err != nil && ctx.Err() == nil {
			// Whoever waits for the Pod will say that it did not come.
			fmt.Fprintf(os.Stderr, "make Pod of claim %q: %v\n", claim.Name, err)
		}
	})
}

func (w *watcher) seen(o any, isNew bool) {
	object, ok := o.(metav1.Object)
	if !ok {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid := types.UID(object.GetLabels()[v1alpha1.LabelClaimUID]); uid != "" {
		if isNew {
			w.left[uid]++
		}
		return
	}
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		if _, before := w.bound[o.UID]; o.Status.Phase == corev1.ClaimBound && !before {
			w.bound[o.UID] = now
			if w.onBound != nil {
				go w.onBound(o)
			}
		}
	case *corev1.Pod:
		if isNew {
			w.pods++
		}
		if _, before := w.ended[o.Name]; o.Status.Phase == corev1.PodSucceeded && !before {
			w.ended[o.Name] = now
		}
	}
}

func (w *watcher) gone(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	object, ok := o.(metav1.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid := types.UID(object.GetLabels()[v1alpha1.LabelClaimUID]); uid != "" {
		if w.left[uid]--; w.left[uid] == 0 {
			w.clean[uid] = time.Now()
		}
	} else if _, ok := o.(*corev1.Pod); ok {
		w.pods--
	}
}

// counts says how many claims are Bound, how many of their Pods have ended, and
// how many temporaries and other Pods are left.
func (w *watcher) counts() (bound, ended, left, pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.left {
		left += n
	}
	return len(w.bound), len(w.ended), left, w.pods
}

// toClean is how long each claim took from Bound to clean, in order of length.
func (w *watcher) toClean() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]time.Duration, 0, len(w.clean))
	for uid, at := range w.clean {
		if bound, ok := w.bound[uid]; ok {
			out = append(out, max(0, at.Sub(bound)))
		}
	}
	slices.Sort(out)
	return out
}

// times are, in order, when claims were Bound, or when their Pods had ended.
func (w *watcher) times(bound bool) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bound {
		return slices.SortedFunc(maps.Values(w.bound), time.Time.Compare)
	}
	return slices.SortedFunc(maps.Values(w.ended), time.Time.Compare)
}

// misbound counts Kubernetes' own ClaimMisbound warnings on primes.
func (b *bed) misbound(ctx context.Context, namespace string) (int, error) {
	events, err := b.clients.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=ClaimMisbound"})
	if err != nil {
		return 0, fmt.Errorf("list events: %w", err)
	}
	n := 0
	for i := range events.Items {
		if strings.HasPrefix(events.Items[i].InvolvedObject.Name, "sluice-") {
			n += max(1, int(events.Items[i].Count))
		}
	}
	return n, nil
}
