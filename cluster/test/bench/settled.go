package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// settledTarget is the manager's memory at ten thousand settled claims, in MiB.
const settledTarget = 150

// settled measures the manager's memory with many claims that were filled once.
// They are made as a population leaves them, by the API alone: no controller
// runs, so that it costs a minute and not an hour.
func (p *population) settled(ctx context.Context) (err error) {
	c, err := clustertest.Start(ctx, clustertest.Config{WithoutControllerManager: true, WithoutScheduler: true, AuditLog: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b, err := newBed(c, p.Repository)
	if err != nil {
		return err
	}
	if err := b.install(ctx); err != nil {
		return err
	}
	if err := b.populate(ctx, nil); err != nil {
		return err
	}
	const namespaces = 10
	for i := range namespaces {
		if err := b.space(ctx, fmt.Sprintf("settled-%d", i)); err != nil {
			return err
		}
	}
	if err := each(ctx, p.Settled, func(ctx context.Context, i int) error {
		return b.settle(ctx, fmt.Sprintf("settled-%d", i%namespaces), fmt.Sprintf("claim-%05d", i))
	}); err != nil {
		return fmt.Errorf("make settled claims: %w", err)
	}

	audit, err := since(c.AuditLog)
	if err != nil {
		return err
	}
	m, err := startManager(ctx, p.program, c.Kubeconfig, filepath.Join(p.Dir, "manager-settled.log"))
	if err != nil {
		return err
	}
	defer m.stop()
	if err := b.accepted(ctx); err != nil {
		return err
	}
	if err := m.idle(ctx); err != nil {
		return err
	}
	now, most, err := m.resident()
	if err != nil {
		return err
	}
	heap, err := m.metric(ctx, "go_memstats_heap_inuse_bytes")
	if err != nil {
		return err
	}
	if p.Profile {
		if err := m.profile(ctx, "heap?gc=1", filepath.Join(p.Dir, "heap-settled.pprof")); err != nil {
			return err
		}
	}
	requests, err := audit.of(managerAgent)
	if err != nil {
		return err
	}
	p.Report.Note("requests-settled", requests)
	// The Populator that was made for this manager to serve is no settled claim.
	ofClaims := 0
	for _, resource := range []string{"persistentvolumeclaims", "persistentvolumes", "pods", "populations", "populations/status", "events"} {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			ofClaims += requests[verb+" "+resource]
		}
	}
	name := func(what string) string { return fmt.Sprintf("settled-%d-%s", p.Settled, what) }
	p.Report.Add(
		figure.New(name("memory"), now, "MiB", figure.AtMost(settledTarget)),
		figure.New(name("memory-most"), most, "MiB", figure.Counted()),
		figure.New(name("heap"), heap/(1<<20), "MiB", figure.Counted()),
		figure.New(name("restart-writes"), float64(ofClaims), "requests", figure.AtMost(0)),
	)
	return nil
}

// idle waits until the manager's queues are empty and it has done nothing for a
// while.
func (m *manager) idle(ctx context.Context) error {
	last, quiet := -1.0, 0
	return clustertest.Until(ctx, func() (bool, error) {
		done, err := m.metric(ctx, "controller_runtime_reconcile_total")
		if err != nil {
			return false, err
		}
		waiting, err := m.metric(ctx, "workqueue_depth")
		if err != nil {
			return false, err
		}
		if quiet++; done != last || waiting > 0 {
			last, quiet = done, 0
		}
		return quiet >= int(5*time.Second/(50*time.Millisecond)), nil
	})
}

// settle makes a claim that was filled, its volume and its record.
func (b *bed) settle(ctx context.Context, namespace, name string) error {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	claim := newClaim(namespace, name, "simulated", true)
	claim.Spec.VolumeName = "pvc-" + namespace + "-" + name
	claim.Labels = map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": namespace}
	claim.Annotations = map[string]string{
		"pv.kubernetes.io/bind-completed":                  "yes",
		"pv.kubernetes.io/bound-by-controller":             "yes",
		"volume.beta.kubernetes.io/storage-provisioner":    "simulated.storage.sluice.dev",
		"volume.kubernetes.io/storage-provisioner":         "simulated.storage.sluice.dev",
		"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{},"name":"` + name + `","namespace":"` + namespace + `"},"spec":{"accessModes":["ReadWriteOnce"],"dataSourceRef":{"apiGroup":"hello.k8s.io","kind":"Hello","name":"example"},"resources":{"requests":{"storage":"10Mi"}}}}`,
	}
	status := corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
	}
	if err := b.kube.Create(ctx, claim); err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	claim.Status = status
	if err := b.kube.Status().Update(ctx, claim); err != nil {
		return fmt.Errorf("bind claim: %w", err)
	}
	volume := settledVolume(claim)
	if err := b.kube.Create(ctx, volume); err != nil {
		return fmt.Errorf("create volume: %w", err)
	}
	volume.Status.Phase = corev1.VolumeBound
	if err := b.kube.Status().Update(ctx, volume); err != nil {
		return fmt.Errorf("bind volume: %w", err)
	}
	record := &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{v1alpha1.LabelClaimUID: string(claim.UID)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name, UID: claim.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: v1alpha1.PopulationSpec{ClaimUID: claim.UID, Attempt: 1, Nonce: "QXNZLKJHGFDSAPOIUYTREWQMNB"},
	}
	if err := b.kube.Create(ctx, record); err != nil {
		return fmt.Errorf("create Population: %w", err)
	}
	record.Status = settledStatus(volume.Name, volume.UID, now)
	if err := b.kube.Status().Update(ctx, record); err != nil {
		return fmt.Errorf("settle Population: %w", err)
	}
	return nil
}

func settledVolume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        claim.Spec.VolumeName,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "simulated.storage.sluice.dev"},
			Finalizers:  []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"},
			Labels: map[string]string{
				v1alpha1.LabelClaimUID: string(claim.UID), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: populate.RoleFilled,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-a"},
				}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "simulated.storage.sluice.dev", VolumeHandle: claim.Spec.VolumeName, FSType: "ext4",
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1780000000000-8081-simulated.storage.sluice.dev"},
			}},
		},
	}
}

func settledStatus(volume string, uid types.UID, at metav1.Time) v1alpha1.PopulationStatus {
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: at}
	}
	return v1alpha1.PopulationStatus{
		Phase: v1alpha1.PhaseSucceeded, ObservedGeneration: 1, Populator: "hello",
		Source: &v1alpha1.SourceRevision{
			Group: helloKind.Group, Kind: helloKind.Kind, Name: sourceName, Summary: "Hello/" + sourceName,
			UID: "3c1b7c9e-5a52-4a57-9b0c-6f5f6d1f2a10", Generation: 1,
			Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		},
		Progress:   &v1alpha1.Progress{Bytes: 14, TotalBytes: 14, Files: 1, Summary: "100%"},
		Result:     &v1alpha1.Result{Attempt: 1, Succeeded: true, ExitCode: ptr.To[int32](0), SourceGeneration: 1, PopulatorGeneration: 1, EndedAt: &at},
		VolumeName: volume, VolumeUID: uid, NodeName: "node-0", StartedAt: &at, CompletedAt: &at,
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionReady, v1alpha1.ReasonPopulated, fmt.Sprintf("Volume %q was filled from Hello/%s", volume, sourceName)),
			condition(v1alpha1.ConditionPopulated, v1alpha1.ReasonPopulated, ""),
			condition(v1alpha1.ConditionSourceResolved, "SourceRead", ""),
		},
	}
}
