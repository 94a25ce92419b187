package plantest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// exitKilled is the exit code of a container that was killed.
const exitKilled = 137

// hardships is what nodes do to the workers that run on them.
func (s *state) hardships(pod *corev1.Pod, add adder) {
	if pod.DeletionTimestamp != nil || containerState(pod).Running == nil {
		return
	}
	add("worker "+pod.Name+" is evicted through the API", func(s *state) {
		s.disrupt(pod, "EvictionByEvictionAPI")
		s.deletePod(s.pod(pod.Namespace, pod.Name))
	})
	// A kubelet short of something stops what runs and deletes nothing. Told to
	// stop, a program may well end with 0.
	for _, code := range []int32{exitKilled, 0} {
		add(fmt.Sprintf("kubelet evicts worker %s, code %d", pod.Name, code), func(s *state) {
			s.disrupt(pod, corev1.PodReasonTerminationByKubelet)
			p := s.pod(pod.Namespace, pod.Name)
			s.endWorker(p, code, false)
			s.editPod(s.pod(pod.Namespace, pod.Name), func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
		})
	}
	add("worker "+pod.Name+" runs out of memory", func(s *state) {
		s.endWorker(pod, exitKilled, false)
		s.editPod(s.pod(pod.Namespace, pod.Name), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		})
	})
	add("the node of worker "+pod.Name+" is lost", func(s *state) {
		s.disrupt(pod, taintManager)
		s.deletePod(s.pod(pod.Namespace, pod.Name))
	})
}

// taintManager is who deletes the Pods of a node that is not heard of. Its
// kubelet does nothing about them, and what they run may run on.
const taintManager = "DeletionByTaintManager"

func (s *state) disrupt(pod *corev1.Pod, reason string) {
	s.editPod(pod, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
	})
}

// disruption is why a Pod is being evicted; empty if it is not.
func disruption(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

// farAway is a consumer that must run where the model's volumes are not.
func (sc Scenario) farAway() []corev1.Pod {
	if !sc.Unreachable {
		return nil
	}
	return []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelTopologyZone: "far"}},
	}}
}

// place says on a volume where it can be reached, and whose its files are.
func (sc Scenario) place(pv *corev1.PersistentVolume) {
	if sc.Unreachable {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"near"}}},
		}}}}
	}
	if sc.RootOwned {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: provisionerName, FSType: "ext4"}
	}
}

// Driver is the CSIDriver of the model's class.
func (sc Scenario) Driver() *storagev1.CSIDriver {
	policy := storagev1.FileFSGroupPolicy
	if sc.RootOwned {
		policy = storagev1.NoneFSGroupPolicy
	}
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: provisionerName}, Spec: storagev1.CSIDriverSpec{FSGroupPolicy: ptr.To(policy)}}
}

// isRoot says that the container of a worker runs as root.
func isRoot(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == v1alpha1.WorkerContainer {
			return c.SecurityContext != nil && ptr.Deref(c.SecurityContext.RunAsUser, 1) == 0
		}
	}
	return false
}

// checkRoot checks a worker that is about to be made against its volume.
func (s *state) checkRoot(w *corev1.Pod) {
	if root := isRoot(w); root != s.sc.RootOwned {
		s.breach("F6: worker %q is root: %t, while its volume is root's: %t", w.Name, root, s.sc.RootOwned)
	}
}

// hear notes what is told on the claim.
func (s *state) hear(e *populate.Event) {
	if e != nil && e.Reason == v1alpha1.ReasonVolumeUnreachableForPod {
		s.warned = true
	}
}

// silence says that a consumer that can never run was not told so.
func (s *state) silence(d *disk) string {
	if s.sc.Unreachable && d != nil && !d.foreign && !s.warned {
		return fmt.Sprintf("F8: no Pod can reach volume %q, and nobody was told", d.pv.Name)
	}
	return ""
}
