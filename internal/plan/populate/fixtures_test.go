package populate_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

const (
	uid          = types.UID("0b7e")
	nonce        = "nonce-of-the-record"
	selectedNode = "volume.kubernetes.io/selected-node"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

// observed is a claim of an Immediate class that nothing was begun for, changed
// as the case demands.
func observed(changes ...func(*populate.Observed)) populate.Observed {
	o := populate.Observed{
		Now: now, Namespace: "tenant", Name: "data", ClaimUID: uid,
		Slot: &slots.Verdict{Granted: true},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "data", UID: uid, ResourceVersion: "10", CreationTimestamp: at(time.Hour)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: ptr.To("fast"),
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
				DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("hello.k8s.io"), Kind: "Hello", Name: "example"},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		},
		Populator: &v1alpha1.Populator{
			ObjectMeta: metav1.ObjectMeta{Name: "hello", Generation: 2},
			Spec: v1alpha1.PopulatorSpec{
				SourceKind:  v1alpha1.SourceKind{Group: "hello.k8s.io", Kind: "Hello"},
				Worker:      &v1alpha1.WorkerTemplate{Image: "busybox"},
				MaxAttempts: 3,
			},
		},
		Source: populate.Source{State: populate.SourceFound, Namespace: "tenant", UID: "source", Generation: 7},
		Class: &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk.example.com",
			ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
		},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func live(o *populate.Observed) { o.Live = true }

func waitsForConsumer(o *populate.Observed) {
	o.Class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
}

// node says that the scheduler chose node-1 for the claim's consumer.
func node(o *populate.Observed) {
	metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, selectedNode, "node-1")
}

func owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "data", UID: uid, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false)}}
}

// population is the record of the claim at an attempt.
func population(attempt int32, changes ...func(*v1alpha1.PopulationStatus)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Population = &v1alpha1.Population{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "data", UID: "population", ResourceVersion: "20", Generation: 1, OwnerReferences: owner()},
			Spec:       v1alpha1.PopulationSpec{ClaimUID: uid, Attempt: attempt, Nonce: nonce},
		}
		for _, change := range changes {
			change(&o.Population.Status)
		}
	}
}

// recorded says that a worker of an attempt may exist.
func recorded(attempt int32) func(*v1alpha1.PopulationStatus) {
	return func(st *v1alpha1.PopulationStatus) {
		st.Phase = v1alpha1.PhasePopulating
		st.Prime = &v1alpha1.TemporaryReference{Namespace: "tenant", Name: populate.TemporaryName(uid, attempt), UID: "prime"}
		st.VolumeName, st.VolumeUID = "pv", "volume"
	}
}

func said(phase v1alpha1.Phase, reason string) func(*v1alpha1.PopulationStatus) {
	return func(st *v1alpha1.PopulationStatus) {
		st.Phase = phase
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}
	}
}

// failed is the result of an attempt that failed a while ago.
func failed(attempt int32, reason string, ago time.Duration) func(*v1alpha1.PopulationStatus) {
	return func(st *v1alpha1.PopulationStatus) {
		said(v1alpha1.PhaseWaiting, reason)(st)
		st.Result = &v1alpha1.Result{
			Attempt: attempt, Reason: reason, Failures: attempt, SourceGeneration: 7, PopulatorGeneration: 2, EndedAt: ptr.To(at(ago)),
		}
	}
}

func temporary(attempt, role string) metav1.ObjectMeta {
	n := map[string]int32{"1": 1, "2": 2}[attempt]
	return metav1.ObjectMeta{
		Namespace: "tenant", Name: populate.TemporaryName(uid, n), UID: types.UID(role), ResourceVersion: "30", CreationTimestamp: at(time.Second),
		Labels:          map[string]string{v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelAttempt: attempt, v1alpha1.LabelRole: role},
		Annotations:     map[string]string{v1alpha1.AnnotationNonce: nonce},
		OwnerReferences: owner(),
	}
}

// prime is the prime of attempt 1, not bound yet.
func prime(changes ...func(*corev1.PersistentVolumeClaim)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		p := corev1.PersistentVolumeClaim{ObjectMeta: temporary("1", v1alpha1.RolePrime)}
		p.Status.Phase = corev1.ClaimPending
		for _, change := range changes {
			change(&p)
		}
		o.Primes = append(o.Primes, p)
	}
}

func primeBound(p *corev1.PersistentVolumeClaim) {
	p.Spec.VolumeName, p.Status.Phase = "pv", corev1.ClaimBound
}

func primeDeleting(p *corev1.PersistentVolumeClaim) { p.DeletionTimestamp = ptr.To(at(time.Second)) }

func primeNode(p *corev1.PersistentVolumeClaim) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, selectedNode, "node-1")
}

// volume is the volume provisioned for the prime.
func volume(changes ...func(*corev1.PersistentVolume)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		pv := corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "volume", ResourceVersion: "40", CreationTimestamp: at(time.Second)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Namespace: "tenant", Name: populate.TemporaryName(uid, 1), UID: "prime"},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
		for _, change := range changes {
			change(&pv)
		}
		o.Volumes = append(o.Volumes, pv)
	}
}

func retained(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func released(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }

func matched(pv *corev1.PersistentVolume) {
	pv.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
}

// handedOver is a volume after the hand-over.
func handedOver(pv *corev1.PersistentVolume) {
	pv.Labels = map[string]string{v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: populate.RoleFilled}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "tenant", Name: "data", UID: uid}
}

// worker is the worker of attempt 1, not started yet.
func worker(changes ...func(*corev1.Pod)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		w := corev1.Pod{ObjectMeta: temporary("1", v1alpha1.RoleWorker)}
		w.Annotations[populate.AnnotationPrimeUID] = "prime"
		w.Annotations[populate.AnnotationReclaimPolicy] = string(corev1.PersistentVolumeReclaimDelete)
		w.Annotations[populate.AnnotationSourceGeneration] = "7"
		w.Annotations[populate.AnnotationPopulatorGeneration] = "2"
		w.Spec.NodeName = "node-1"
		w.Status.Phase = corev1.PodPending
		for _, change := range changes {
			change(&w)
		}
		o.Workers = append(o.Workers, w)
	}
}

func container(w *corev1.Pod, s corev1.ContainerState) {
	w.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "injected"}, {Name: v1alpha1.WorkerContainer, State: s}}
}

func workerRunning(since time.Duration) func(*corev1.Pod) {
	return func(w *corev1.Pod) {
		w.Status.Phase = corev1.PodRunning
		container(w, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(since)}})
	}
}

func workerEnded(code int32, message string) func(*corev1.Pod) {
	return func(w *corev1.Pod) {
		w.Status.Phase = corev1.PodRunning // a sidecar runs on
		container(w, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: at(0)}})
	}
}

func claimBoundTo(volume string) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Claim.Spec.VolumeName, o.Claim.Status.Phase = volume, corev1.ClaimBound
		metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	}
}

func rendered(o *populate.Observed) {
	o.Rendered = &populate.Rendered{Attempt: 1, Pod: &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: v1alpha1.WorkerContainer, Image: "busybox"}}},
	}}
}

// notRendered says that there is no worker to be had, and why.
func notRendered(reason string) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Rendered = &populate.Rendered{Attempt: 1, Reason: reason, Message: "no worker"}
	}
}
