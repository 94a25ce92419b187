package webhook

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/internal/manager"
)

// warnings are what kubectl would print.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// warned returns a client and the warnings that it gets.
func warned(t *testing.T) (client.Client, *warnings) {
	t.Helper()
	c, w, err := warnedClient()
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

func warnedClient() (client.Client, *warnings, error) {
	w := &warnings{}
	cfg := cluster.RESTConfig()
	cfg.WarningHandlerWithContext = w
	c, err := client.New(cfg, client.Options{Scheme: manager.Scheme()})
	return c, w, err
}

// helloPopulator is a Populator of a kind of the given group.
func helloPopulator(name, group string, change ...func(*v1alpha1.Populator)) *v1alpha1.Populator {
	p := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind: v1alpha1.SourceKind{Group: group, Kind: "Hello"},
			Worker: &v1alpha1.WorkerTemplate{
				Image: "busybox:latest",
				Env:   []corev1.EnvVar{{Name: "NAME", Value: "${source.spec.fileName}"}},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func claimOf(namespace, group, kind string) *corev1.PersistentVolumeClaim {
	ref := &corev1.TypedObjectReference{Kind: kind, Name: "x"}
	if group != "" {
		ref.APIGroup = ptr.To(group)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "claim-"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			DataSourceRef: ref,
		},
	}
}

// create creates an object, and deletes it when the test ends.
func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	remove(t, o)
}

// remove deletes an object when the test ends, and waits until it is gone.
func remove(t *testing.T, o client.Object) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := kube.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		if _, ok := o.(*corev1.Namespace); ok {
			return
		}
		if err := clustertest.Until(ctx, func() (bool, error) {
			err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}); err != nil {
			t.Errorf("wait until %T %q is gone: %v", o, o.GetName(), err)
		}
	})
}

// await polls a condition until it holds, and fails the test after a time.
func await(t *testing.T, limit time.Duration, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := clustertest.Until(ctx, func() (bool, error) { return holds(ctx) }); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// awaitAccepted waits until a Populator's Accepted condition has a reason, and
// returns its message.
func awaitAccepted(t *testing.T, name, reason string) string {
	t.Helper()
	var last metav1.Condition
	var p v1alpha1.Populator
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Populator %q was last seen with %+v", name, last)
		}
	})
	await(t, 40*time.Second, "Populator "+name+" is "+reason, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
			return false, err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
			last = *c
		}
		return last.Reason == reason && last.ObservedGeneration == p.Generation, nil
	})
	return last.Message
}
