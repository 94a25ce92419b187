package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// systemNamespace is the manager's own, as startManager has it.
const systemNamespace = "kube-node-lease"

// placement gives the populator one.
func placement(p v1alpha1.Placement) func(*v1alpha1.Populator) {
	return func(o *v1alpha1.Populator) { o.Spec.Placement = p }
}

func TestPlacementSystem(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(300*time.Millisecond), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "elsewhere", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 10*time.Second, "the prime is in the manager's namespace and the claim is held", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		left, err := temporaries(ctx, claim)
		if err != nil {
			return err
		}
		if len(left) == 0 || !strings.HasPrefix(left[0], systemNamespace+"/") || !slices.Contains(claim.Finalizers, v1alpha1.FinalizerPopulation) {
			return fmt.Errorf("temporaries %v, finalizers %v", left, claim.Finalizers)
		}
		return nil
	})
	bound(t, claim, 30*time.Second)
	p := succeeded(t, claim, 10*time.Second)
	if p.Spec.Namespace != systemNamespace {
		t.Errorf("the record says namespace %q, want %q", p.Spec.Namespace, systemNamespace)
	}
	eventually(t, 10*time.Second, "the claim is let go", letGo(claim))
	for _, e := range events(t, claim) {
		if strings.HasPrefix(e, corev1.EventTypeWarning) {
			t.Errorf("event %q after a population that went well", e)
		}
	}
}

func TestPlacementDeletedMeanwhile(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	p := populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "deleted", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))

	// Nothing that a placement is decided from is there any more.
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Placement = v1alpha1.PlacementClaim
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	gone(t, &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim.Name}})
	gone(t, claim)
	eventually(t, 10*time.Second, "temporaries are gone", letGo(claim))
}

func TestPlacementSweptWithoutClaim(t *testing.T) {
	ns := namespace(t)
	m := startManager(t)
	populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "orphan", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))
	m.kill(t)

	// By hand the claim goes although nobody cleans up.
	if err := kube.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	gone(t, claim)
	if left, err := temporaries(t.Context(), claim); err != nil || len(left) == 0 {
		t.Fatalf("temporaries %v, %v, want those of the claim that is gone", left, err)
	}
	startManager(t)
	eventually(t, 20*time.Second, "a manager that starts sweeps", letGo(claim))
}

// letGo says what keeps a claim from being rid of us: its finalizer, or a
// temporary in any namespace.
func letGo(claim *corev1.PersistentVolumeClaim) func(context.Context) error {
	return func(ctx context.Context) error {
		var now corev1.PersistentVolumeClaim
		err := kube.Get(ctx, client.ObjectKeyFromObject(claim), &now)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case slices.Contains(now.Finalizers, v1alpha1.FinalizerPopulation):
			return errors.New("the claim is held")
		}
		left, err := temporaries(ctx, claim)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	}
}

// temporaries are the primes and workers of a claim, as namespace/name.
func temporaries(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	of := client.MatchingLabels{v1alpha1.LabelClaimUID: string(claim.UID)}
	var primes corev1.PersistentVolumeClaimList
	if err := kube.List(ctx, &primes, of); err != nil {
		return nil, err
	}
	var workers corev1.PodList
	if err := kube.List(ctx, &workers, of); err != nil {
		return nil, err
	}
	var out []string
	for i := range primes.Items {
		out = append(out, primes.Items[i].Namespace+"/"+primes.Items[i].Name)
	}
	for i := range workers.Items {
		out = append(out, workers.Items[i].Namespace+"/"+workers.Items[i].Name)
	}
	return out, nil
}
