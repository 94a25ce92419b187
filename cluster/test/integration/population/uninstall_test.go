package population

import (
	"context"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// TestUninstall runs what the chart runs before it goes, beside a manager that
// leads: nothing is done until that has stopped. Then the claim is let go, and
// the next installation fills it by another attempt.
func TestUninstall(t *testing.T) {
	m := startManager(t)
	ns := namespace(t)
	p := populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "held", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "uninstall", "--kubeconfig="+cluster.Kubeconfig, "--namespace="+systemNamespace, "--log-format=text")
	log := &logBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("uninstall did not wait for the manager: %v\n%s", err, log)
	case <-time.After(3 * time.Second):
	}
	if left, err := temporaries(t.Context(), claim); err != nil || len(left) != 2 {
		t.Fatalf("temporaries %v, %v, want them left to the manager while it leads", left, err)
	}
	m.stop(t)
	if err := <-ended; err != nil {
		t.Fatalf("uninstall: %v\n%s", err, log)
	}
	if err := letGo(claim)(t.Context()); err != nil {
		t.Errorf("after uninstall: %v\n%s", err, log)
	}
	if err := noVolumes(systemNamespace)(t.Context()); err != nil {
		eventually(t, 10*time.Second, "the volume that was begun is gone", noVolumes(systemNamespace))
	}

	// Called again there is nothing to do.
	if out, err := exec.CommandContext(ctx, program, "uninstall", "--kubeconfig="+cluster.Kubeconfig, "--namespace="+systemNamespace).CombinedOutput(); err != nil {
		t.Errorf("uninstall again: %v\n%s", err, out)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Worker.Annotations = runs(300 * time.Millisecond)
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	startManager(t)
	bound(t, claim, 60*time.Second)
	if got := succeeded(t, claim, 10*time.Second); got.Spec.Attempt < 2 {
		t.Errorf("attempt %d succeeded, want one that nothing was left of", got.Spec.Attempt)
	}
	eventually(t, 10*time.Second, "the claim is let go", letGo(claim))
}

// TestUninstallWithDeletedClaim lets a claim go that is being deleted and would
// stay for ever.
func TestUninstallWithDeletedClaim(t *testing.T) {
	m := startManager(t)
	ns := namespace(t)
	populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "deleted", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))
	m.kill(t)
	if err := kube.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{}}); err != nil {
		t.Fatalf("the claim should wait for its finalizer: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "uninstall", "--kubeconfig="+cluster.Kubeconfig, "--namespace="+systemNamespace).CombinedOutput()
	if err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	gone(t, claim)
	eventually(t, 10*time.Second, "nothing is left", letGo(claim))
}
