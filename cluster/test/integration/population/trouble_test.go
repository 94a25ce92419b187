package population

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestBlockVolumeIsFilled(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	create(t, claim)
	volume := bound(t, claim, 20*time.Second)
	if *volume.Spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("volume mode is %s", *volume.Spec.VolumeMode)
	}
	clean(t, ns, 5*time.Second)
}

func TestRestrictedNamespaceAdmitsTheDefaultWorker(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := kube.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch); err != nil {
		t.Fatal(err)
	}
	populator(t, runs(0))
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 20*time.Second)
	clean(t, ns, 5*time.Second)
}

func TestQuotaIsToldAndNewRoomIsUsed(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}},
	}
	create(t, quota)
	eventually(t, 10*time.Second, "quota is in force", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return fmt.Errorf("its status is empty")
		}
		return nil
	})
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonQuotaExceeded, 5*time.Second)
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "persistentvolumeclaims=1") {
		t.Errorf("the message has no figures: %q", c.Message)
	}
	if err := kube.Patch(t.Context(), quota, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"hard":{"persistentvolumeclaims":"2"}}}`))); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 15*time.Second)
	clean(t, ns, 5*time.Second)
	if got := events(t, claim); !slices.Contains(got, "Warning "+v1alpha1.ReasonQuotaExceeded) || len(got) > 3 {
		t.Errorf("events on the claim are %q, want the refusal once", got)
	}
}

func TestFailedWorkerIsToldAndAChangeArmsAgain(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	p := populator(t, map[string]string{
		simulate.AnnotationRuns: "0s", simulate.AnnotationExitCode: "3", simulate.AnnotationMessage: "the tape is torn",
	}, func(p *v1alpha1.Populator) { p.Spec.MaxAttempts = 1 })
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	got := waits(t, claim, v1alpha1.ReasonWorkerFailed, 20*time.Second)
	if got.Status.Phase != v1alpha1.PhaseFailed || got.Status.Result == nil || got.Status.Result.ExitCode == nil ||
		*got.Status.Result.ExitCode != 3 || !strings.Contains(got.Status.Result.Message, "the tape is torn") {
		t.Fatalf("population is %+v", got.Status)
	}
	var kept corev1.PodList
	if err := kube.List(t.Context(), &kept, client.InNamespace(ns), client.HasLabels{v1alpha1.LabelRole}); err != nil || len(kept.Items) != 1 {
		t.Errorf("%d failed workers are kept, want 1 for its log: %v", len(kept.Items), err)
	}

	p.Spec.Worker.Annotations = runs(0)
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 30*time.Second)
	clean(t, ns, 5*time.Second)
	if got := succeeded(t, claim, 5*time.Second); got.Spec.Attempt != 2 {
		t.Errorf("it took %d attempts, want 2", got.Spec.Attempt)
	}
}

func TestForeignVolumeIsGivenBack(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(time.Hour))
	hello(t, ns)
	// Somebody's volume, to which the scheduler will bind the prime.
	theirs := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "theirs-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:              simulate.ClassWait,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: simulate.Driver, VolumeHandle: "theirs"},
			},
		},
	}
	create(t, theirs)
	// The claim itself has no consumer, so Kubernetes does not match it.
	claim := newClaim(ns, "claim", simulate.ClassWait)
	claim.Annotations = map[string]string{v1alpha1.AnnotationPopulate: v1alpha1.PopulateImmediately}
	workers := watchWorkers(t, ns)
	create(t, claim)
	t.Cleanup(func() { gone(t, claim); gone(t, theirs) })

	eventually(t, 30*time.Second, "the volume is given back", func(ctx context.Context) error {
		p := &v1alpha1.Population{}
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), p); err != nil {
			return err
		}
		if err := kube.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil {
			return err
		}
		if r := p.Status.Result; r == nil || r.Reason != v1alpha1.ReasonPrimeBoundToForeign {
			return fmt.Errorf("population: %s", describe(ctx, claim))
		}
		if theirs.Status.Phase != corev1.VolumeAvailable || theirs.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || len(theirs.Labels) > 0 {
			return fmt.Errorf("volume is %s with policy %s, labels %v, claimRef %v", theirs.Status.Phase,
				theirs.Spec.PersistentVolumeReclaimPolicy, theirs.Labels, theirs.Spec.ClaimRef)
		}
		return nil
	})
	if seen := workers(); len(seen) > 0 {
		t.Errorf("Pods %q could have mounted somebody's volume", seen)
	}
}

func TestClaimOfAnOldNameIsFilledAnew(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(0))
	hello(t, ns)
	first := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, first)
	bound(t, first, 20*time.Second)
	gone(t, first)
	second := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, second)
	bound(t, second, 20*time.Second)
	if p := succeeded(t, second, 5*time.Second); p.Spec.ClaimUID != second.UID {
		t.Errorf("the population is of claim %q, want %q", p.Spec.ClaimUID, second.UID)
	}
	clean(t, ns, 5*time.Second)
}

func TestSecondReplicaTakesOver(t *testing.T) {
	leader := startManager(t, "--lease-duration=6s")
	startManager(t, "--lease-duration=6s")
	ns := namespace(t)
	populator(t, runs(time.Second))
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(ns))
	leader.kill(t)
	bound(t, claim, 20*time.Second)
	clean(t, ns, 10*time.Second)
	if p := succeeded(t, claim, 5*time.Second); p.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want the running one to be taken over", p.Spec.Attempt)
	}
}

func TestNamespaceDeletedWithPopulationsInFlight(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(time.Hour))
	hello(t, ns)
	for i := range 5 {
		create(t, newClaim(ns, fmt.Sprintf("claim-%d", i), simulate.ClassImmediate))
	}
	eventually(t, 15*time.Second, "worker runs", workerRuns(ns))
	gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	eventually(t, 15*time.Second, "volumes are gone", noVolumes(ns))
}

func TestRegistrationsMayBeMissing(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "volumepopulators.populator.storage.k8s.io"}}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	again := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Annotations: crd.Annotations}, Spec: crd.Spec}
	gone(t, crd)
	restored := false
	restore := func() {
		if !restored {
			restored = true
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
			defer cancel()
			if err := kube.Create(ctx, again); err != nil {
				t.Errorf("create the definition again: %v", err)
			}
		}
	}
	t.Cleanup(restore)

	startManager(t)
	ns := namespace(t)
	hello(t, ns)
	restore()
	populator(t, runs(0))
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 20*time.Second)
	clean(t, ns, 5*time.Second)
}
