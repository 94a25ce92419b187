package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// workersAtOnce counts the workers of a namespace that are there, and the most
// that ever were.
type workersAtOnce struct {
	mu        sync.Mutex
	now, most int
}

func countWorkers(t *testing.T, ns string) *workersAtOnce {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(ns))
	w := &workersAtOnce{}
	running := map[string]bool{}
	note := func(o any, gone bool) {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Labels[v1alpha1.LabelRole] != v1alpha1.RoleWorker {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		running[pod.Name] = !gone && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
		w.now = 0
		for _, is := range running {
			if is {
				w.now++
			}
		}
		w.most = max(w.most, w.now)
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { note(o, false) },
		UpdateFunc: func(_, o any) { note(o, false) },
		DeleteFunc: func(o any) { note(o, true) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return w
}

func (w *workersAtOnce) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// oneWaits returns one of several claims that says that it waits for its turn.
// Of claims that were created in the same second, any may be the last.
func oneWaits(t *testing.T, claims []*corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	var waiting *corev1.PersistentVolumeClaim
	eventually(t, soon, "one of the claims says "+v1alpha1.ReasonWaitingForSlot, func(ctx context.Context) error {
		for _, claim := range claims {
			p := &v1alpha1.Population{}
			if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), p); client.IgnoreNotFound(err) != nil {
				return err
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == v1alpha1.ReasonWaitingForSlot {
				waiting = claim
				return nil
			}
		}
		return errors.New("none does")
	})
	return waiting
}

// TestNeverMoreWorkersThanTheLimit has ten claims of a Populator that fills two
// at a time, and the manager killed in the middle.
func TestNeverMoreWorkersThanTheLimit(t *testing.T) {
	const claims, limit = 10, 2
	first := startManager(t)
	ns := namespace(t)
	populator(t, runs(time.Second), func(p *v1alpha1.Populator) { p.Spec.MaxConcurrent = limit })
	hello(t, ns)
	workers := countWorkers(t, ns)
	all := make([]*corev1.PersistentVolumeClaim, claims)
	for i := range all {
		all[i] = newClaim(ns, fmt.Sprintf("claim-%d", i), simulate.ClassImmediate)
		create(t, all[i])
	}
	waiting := oneWaits(t, all)
	told := "Normal " + v1alpha1.ReasonWaitingForSlot
	eventually(t, soon, "it is told", func(context.Context) error {
		if got := events(t, waiting); !slices.Contains(got, told) {
			return fmt.Errorf("events are %q", got)
		}
		return nil
	})
	eventually(t, 20*time.Second, "a worker runs", workerRuns(ns))
	first.kill(t)
	startManager(t, "--lease-duration=3s")

	for _, claim := range all {
		bound(t, claim, time.Minute)
		succeeded(t, claim, 10*time.Second)
	}
	clean(t, ns, 10*time.Second)
	if got := workers.peak(); got > limit {
		t.Errorf("%d workers at once, want at most %d", got, limit)
	}
	if got := events(t, waiting); len(got) < 2 || got[0] != told {
		t.Errorf("events of the claim that waited are %q, want first that it waits", got)
	}
}

// TestOneClaimIsNotHeldUpByManyOfAnotherNamespace has one claim come after many
// of another namespace.
func TestOneClaimIsNotHeldUpByManyOfAnotherNamespace(t *testing.T) {
	startManager(t, "--max-populations=2")
	many, few := namespace(t), namespace(t)
	populator(t, runs(time.Second))
	hello(t, many)
	hello(t, few)
	crowd := make([]*corev1.PersistentVolumeClaim, 12)
	for i := range crowd {
		crowd[i] = newClaim(many, fmt.Sprintf("claim-%d", i), simulate.ClassImmediate)
		create(t, crowd[i])
	}
	oneWaits(t, crowd)
	single := newClaim(few, "claim", simulate.ClassImmediate)
	create(t, single)
	bound(t, single, time.Minute)
	left := 0
	for _, claim := range crowd {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatal(err)
		}
		if claim.Status.Phase != corev1.ClaimBound {
			left++
		}
	}
	if left == 0 {
		t.Error("the single claim was the last to be filled")
	}
	for _, claim := range crowd {
		bound(t, claim, time.Minute)
	}
}
