package nodeset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Problems says why an affinity must not be written to a volume, although the
// API server may accept it: no node could ever match it, or it would not mean
// what it says. Each problem names the field, below nodeAffinity.
func Problems(a *corev1.VolumeNodeAffinity) []string {
	if a == nil {
		return nil
	}
	path := field.NewPath("nodeAffinity", "required")
	if a.Required == nil {
		return []string{fmt.Sprintf("%s: is missing", path)}
	}
	path = path.Child("nodeSelectorTerms")
	terms := a.Required.NodeSelectorTerms
	if len(terms) == 0 {
		return []string{fmt.Sprintf("%s: without a term no node can reach the volume", path)}
	}
	var out []string
	for i := range terms {
		if why := problem(&terms[i]); why != "" {
			out = append(out, fmt.Sprintf("%s: %s", path.Index(i), why))
		}
	}
	return out
}

func problem(t *corev1.NodeSelectorTerm) string {
	switch {
	case len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0:
		return "an empty term matches no node"
	case len(t.MatchFields) > 0:
		return "matchFields are ignored by scheduler and kubelet; use the label kubernetes.io/hostname in matchExpressions"
	}
	one := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{*t}}
	if _, err := nodeaffinity.NewNodeSelector(one, field.WithPath(field.NewPath(""))); err != nil {
		return fmt.Sprintf("cannot be parsed and would match no node: %v", err)
	}
	if _, ok := parse(t); !ok {
		return "contradicts itself and would match no node"
	}
	return ""
}
