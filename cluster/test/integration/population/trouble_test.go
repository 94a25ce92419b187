package population

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestBlockVolumeIsFilled(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	create(t, claim)
	volume := bound(t, claim, 20*time.Second)
	if *volume.Spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("volume mode is %s", *volume.Spec.VolumeMode)
	}
	clean(t, s.namespace, 5*time.Second)
}

func TestForeignVolumeIsGivenBack(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Hour))
	s.source(t)
	waiting := s.class(t, simulate.ClassWait)
	// Somebody's volume, to which the scheduler will bind the prime.
	theirs := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "theirs-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:              waiting,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: simulate.Driver, VolumeHandle: "theirs"},
			},
		},
	}
	create(t, theirs)
	// The claim itself has no consumer, so Kubernetes does not match it.
	claim := s.claim("claim", waiting)
	claim.Annotations = map[string]string{v1alpha1.AnnotationPopulate: v1alpha1.PopulateImmediately}
	workers := watchWorkers(t, s.namespace)
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
	s := shared(t)
	s.populator(t, runs(0))
	s.source(t)
	first := s.claim("claim", simulate.ClassImmediate)
	create(t, first)
	bound(t, first, 20*time.Second)
	gone(t, first)
	second := s.claim("claim", simulate.ClassImmediate)
	create(t, second)
	bound(t, second, 20*time.Second)
	if p := succeeded(t, second, 5*time.Second); p.Spec.ClaimUID != second.UID {
		t.Errorf("the population is of claim %q, want %q", p.Spec.ClaimUID, second.UID)
	}
	clean(t, s.namespace, 5*time.Second)
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
	s := alone(t)
	s.source(t)
	restore()
	s.populator(t, runs(0))
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
}
