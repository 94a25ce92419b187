package populate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A Pod that waits for the claim may demand a node that cannot reach the volume:
// the volume was made where the class, or a scout, wanted it. The scheduler says
// so only when the claim is bound, so it is told while the volume is filled. What
// contradicts each other is judged by labels alone, so that whoever is told of is
// certain to be in trouble.

// stranded is a waiting consumer that can run on no node that reaches a volume,
// of several the first by name; nil if none is certain to be.
func (v *view) stranded(pv *corev1.PersistentVolume) *corev1.Pod {
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var first *corev1.Pod
	for i := range v.Consumers {
		pod := &v.Consumers[i]
		if pod.DeletionTimestamp != nil || first != nil && first.Name < pod.Name {
			continue
		}
		if !slices.ContainsFunc(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
			return !shuts(t.MatchExpressions, pod)
		}) {
			first = pod
		}
	}
	return first
}

// strandedMessage says what is wrong with a stranded consumer.
func strandedMessage(pod *corev1.Pod, pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("Pod %q waits for the claim and may run on none of the nodes that reach volume %q; change its node selector or affinity, or delete the claim",
		pod.Name, pv.Name)
}

// shuts says that no node can satisfy a term of a volume and the demands of a
// Pod both.
func shuts(term []corev1.NodeSelectorRequirement, pod *corev1.Pod) bool {
	for key, value := range pod.Spec.NodeSelector {
		demand := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		if slices.ContainsFunc(term, func(r corev1.NodeSelectorRequirement) bool { return excludes(r, demand) }) {
			return true
		}
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	// Of the Pod's terms one is enough.
	return !slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchExpressions, func(demand corev1.NodeSelectorRequirement) bool {
			return slices.ContainsFunc(term, func(r corev1.NodeSelectorRequirement) bool { return excludes(r, demand) })
		})
	})
}

// excludes says that no label satisfies both of two requirements.
func excludes(a, b corev1.NodeSelectorRequirement) bool {
	if a.Key != b.Key {
		return false
	}
	if b.Operator == corev1.NodeSelectorOpIn && a.Operator != corev1.NodeSelectorOpIn {
		a, b = b, a
	}
	switch a.Operator {
	case corev1.NodeSelectorOpIn:
		switch b.Operator {
		case corev1.NodeSelectorOpIn:
			return !slices.ContainsFunc(a.Values, func(value string) bool { return slices.Contains(b.Values, value) })
		case corev1.NodeSelectorOpNotIn:
			return !slices.ContainsFunc(a.Values, func(value string) bool { return !slices.Contains(b.Values, value) })
		case corev1.NodeSelectorOpDoesNotExist:
			return true
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return b.Operator == corev1.NodeSelectorOpDoesNotExist
	case corev1.NodeSelectorOpDoesNotExist:
		return b.Operator == corev1.NodeSelectorOpExists || b.Operator == corev1.NodeSelectorOpGt || b.Operator == corev1.NodeSelectorOpLt
	case corev1.NodeSelectorOpNotIn:
	}
	return false
}
