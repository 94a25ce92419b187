package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// slow starts a population that takes some seconds and returns its claim when
// the worker runs.
func slow(t *testing.T, ns string, seconds int64) *corev1.PersistentVolumeClaim {
	t.Helper()
	create(t, source(groupTest, "Delay", ns, map[string]any{"seconds": seconds, "text": "done"}))
	claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Delay", "src")
	create(t, claim)
	eventually(t, "worker runs", patience, func(ctx context.Context) error {
		_, err := runningWorker(ctx, claim)
		return err
	})
	return claim
}

func runningWorker(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	var pods corev1.PodList
	err := kube.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingLabels{v1alpha1.LabelClaimUID: string(claim.UID)})
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("none of %d runs", len(pods.Items))
}

// killManager kills every Pod of the manager at once, without a goodbye.
func killManager(t *testing.T) {
	t.Helper()
	pods, err := managerPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if err := kube.Delete(t.Context(), &pods[i], client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("kill %q: %v", pods[i].Name, err)
		}
	}
}

// managerReady waits until the manager has all its replicas again, so that the
// next test finds it as it should be.
func managerReady(t *testing.T) {
	t.Helper()
	mustKubectl(t, "-n", helm.Namespace, "rollout", "status", "deployment/sluice-manager", "--timeout=90s")
}

// TestManagerKilled kills all replicas while a worker runs: the population goes
// on, with that same worker.
func TestManagerKilled(t *testing.T) {
	ns := space(t)
	claim := slow(t, ns, 8)
	before, err := runningWorker(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	killManager(t)
	defer managerReady(t)
	p := completed(t, ns, "claim")
	if p.Spec.Attempt != 1 {
		t.Errorf("attempt %d succeeded, want 1: worker %q was thrown away", p.Spec.Attempt, before.Name)
	}
	settled(t, ns, "claim")
	quiet(t, ns, waitedForNobody)
	pod := reader(ns, "claim", "runs", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "started\n")
}

// TestManagerRestarted restarts the Deployment, as an upgrade does, while
// workers run.
func TestManagerRestarted(t *testing.T) {
	ns := space(t)
	slow(t, ns, 8)
	mustKubectl(t, "-n", helm.Namespace, "rollout", "restart", "deployment/sluice-manager")
	defer managerReady(t)
	p := completed(t, ns, "claim")
	if p.Spec.Attempt != 1 {
		t.Errorf("attempt %d succeeded, want 1", p.Spec.Attempt)
	}
	settled(t, ns, "claim")
	quiet(t, ns, waitedForNobody)
}

// TestClaimDeleted deletes the claim while its worker runs: nothing is left,
// neither objects nor the volume.
func TestClaimDeleted(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := slow(t, ns, 120)
	p, err := populationOf(t.Context(), ns, "claim")
	if err != nil {
		t.Fatal(err)
	}
	if p.Status.VolumeName == "" {
		t.Fatalf("the population of a running worker names no volume: %+v", p.Status)
	}
	if err := kube.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "claim is gone", 45*time.Second, gone(claim))
	clean(t, claim.UID, 45*time.Second)
	eventually(t, "population is gone", 20*time.Second, gone(p))
	volume := &corev1.PersistentVolume{}
	volume.Name = p.Status.VolumeName
	eventually(t, "volume is gone", 45*time.Second, gone(volume))
}

// gone checks that an object is no longer there.
func gone(o client.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is there")
		}
		return err
	}
}

// TestNamespaceDeleted deletes a namespace with populations in it.
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := slow(t, ns, 120)
	for i := range 4 {
		create(t, claimFor(ns, fmt.Sprintf("more-%d", i), waiting, corev1.PersistentVolumeFilesystem, groupTest, "Delay", "src"))
	}
	eventually(t, "populations are there", patience, func(ctx context.Context) error {
		_, err := populationOf(ctx, ns, "more-3")
		return err
	})
	deleteSpace(t, ns)
	clean(t, claim.UID, time.Second)
}

// TestWorkerDeleted deletes a worker in the middle: the volume is thrown away,
// and the next attempt starts on a fresh one.
func TestWorkerDeleted(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := slow(t, ns, 6)
	worker, err := runningWorker(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), worker, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	p := completed(t, ns, "claim")
	if p.Spec.Attempt < 2 {
		t.Errorf("attempt %d succeeded although its worker was deleted", p.Spec.Attempt)
	}
	clean(t, claim.UID, 30*time.Second)
	pod := reader(ns, "claim", "runs", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "started\n")
}
