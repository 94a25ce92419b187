package population

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// TestSourceDeletedThenClaim deletes the source while a worker runs, and then
// the claim: nothing of either holds the other up.
func TestSourceDeletedThenClaim(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Hour))
	source := s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	s.worker(t)
	gone(t, source)
	gone(t, claim)
	clean(t, s.namespace, 15*time.Second)
	eventually(t, 15*time.Second, "volumes are gone", noVolumes(s.namespace))
}

// TestClaimOfARetainingClassDeleted deletes a claim in the middle where the
// class keeps volumes: the half filled one is gone, or marked and nobody's.
func TestClaimOfARetainingClassDeleted(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Hour))
	s.source(t)
	claim := s.claim("claim", simulate.ClassRetain)
	create(t, claim)
	s.worker(t)
	gone(t, claim)
	clean(t, s.namespace, 15*time.Second)
	eventually(t, 15*time.Second, "the volume is gone or marked", func(ctx context.Context) error {
		var all corev1.PersistentVolumeList
		if err := kube.List(ctx, &all); err != nil {
			return err
		}
		for _, v := range all.Items {
			if ref := v.Spec.ClaimRef; ref == nil || ref.Namespace != s.namespace {
				continue
			}
			if _, marked := v.Labels[v1alpha1.LabelPartial]; !marked || v.Status.Phase != corev1.VolumeReleased {
				return fmt.Errorf("volume %q is %s with labels %v", v.Name, v.Status.Phase, v.Labels)
			}
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			t.Cleanup(func() { gone(t, &v) })
		}
		return nil
	})
}

// TestNamespacesDeletedAtOnce deletes a dozen namespaces at once, each with
// populations in every phase.
func TestNamespacesDeletedAtOnce(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Hour))
	failing := &scene{namespace: s.namespace + "-failing", kind: ownKind(t)}
	failing.populator(t, map[string]string{simulate.AnnotationRuns: "0s", simulate.AnnotationExitCode: "1"})
	quick := &scene{namespace: s.namespace + "-quick", kind: ownKind(t)}
	quick.populator(t, runs(0))

	var all []string
	for range 12 {
		ns := namespace(t)
		all = append(all, ns)
		for _, kind := range []*scene{s, failing, quick} {
			kind.sourceIn(t, ns)
		}
		add := func(of *scene, name, class string, change func(*corev1.PersistentVolumeClaim)) {
			claim := of.claim(name, class)
			claim.Namespace = ns
			if change != nil {
				change(claim)
			}
			create(t, claim)
		}
		add(s, "no-source", simulate.ClassImmediate, func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef.Name = "other" })
		add(s, "no-consumer", simulate.ClassWait, nil)
		add(s, "provisioning", simulate.ClassImmediate, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{simulate.AnnotationProvisioning: "1h"}
		})
		add(s, "populating", simulate.ClassImmediate, nil)
		add(failing, "failing", simulate.ClassImmediate, nil)
		add(quick, "filled", simulate.ClassImmediate, nil)
	}
	for _, ns := range all {
		claim := quick.claim("filled", simulate.ClassImmediate)
		claim.Namespace = ns
		bound(t, claim, time.Minute)
		eventually(t, 30*time.Second, "worker runs", workerRuns(ns))
	}
	for _, ns := range all {
		if err := kube.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range all {
		eventually(t, 45*time.Second, "claims are gone", func(ctx context.Context) error {
			var claims corev1.PersistentVolumeClaimList
			err := kube.List(ctx, &claims, client.InNamespace(ns))
			if err == nil && len(claims.Items) > 0 {
				err = fmt.Errorf("there are %d", len(claims.Items))
			}
			return err
		})
		eventually(t, 15*time.Second, "volumes are gone", noVolumes(ns))
	}
	// Kubernetes itself takes its time with so many at once.
	for _, ns := range all {
		eventually(t, 2*time.Minute, "namespace is gone", func(ctx context.Context) error {
			o := &corev1.Namespace{}
			err := kube.Get(ctx, client.ObjectKey{Name: ns}, o)
			if err == nil {
				return fmt.Errorf("its conditions are %+v", o.Status.Conditions)
			}
			return client.IgnoreNotFound(err)
		})
	}
}
