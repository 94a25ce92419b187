package affinity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// inTree says that a volume's plugin is one that Kubernetes translates to CSI:
// its zone label is part of what it is.
func inTree(pv *corev1.PersistentVolume) bool {
	s := pv.Spec.PersistentVolumeSource
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.AzureFile != nil ||
		s.Cinder != nil || s.VsphereVolume != nil || s.PortworxVolume != nil
}

// plan says what the change would do.
func (v *view) plan() *change.Plan {
	kept, gained, lost := Compare(v.from, v.to, v.Nodes)
	p := &change.Plan{NodesKept: count(len(kept)), NodesGained: count(len(gained)), NodesLost: count(len(lost))}
	for i := range v.Pods {
		if n := v.Pods[i].Spec.NodeName; n != "" && !v.over(&v.Pods[i]) && !v.admits(v.to, n) {
			p.PodsAffected++
		}
	}
	p.Steps = v.steps()
	if v.from.Within(v.to) == nodeset.No && len(lost) == 0 && v.route.kind != change.None {
		p.Notes = append(p.Notes, "nodes could join that match the old affinity and not the target, for example from an autoscaler's template")
	}
	if inTree(v.Volume) {
		p.Notes = append(p.Notes, "the volume's zone label is part of its identity and stays as it is")
	}
	if v.Change.Spec.AnyNode {
		p.Notes = append(p.Notes, "an affinity that was removed can be set again without the feature gate, but not changed")
	}
	return p
}

func count(n int) int32 { return int32(min(n, 1<<30)) } //nolint:gosec // bounded in this very line

// steps are the steps of the route, for people.
func (v *view) steps() []string {
	narrowing := "restrict the volume to the nodes that old and new have in common, wait until no Pod is outside"
	if v.route.skipLast {
		narrowing = "restrict the volume to the target, wait until no Pod is outside"
	}
	var out []string
	switch {
	case v.route.offline:
		out = append(out, "let no Pod that uses the volume be bound")
	case !v.route.skipFirst:
		out = append(out, narrowing)
	}
	if v.Change.Spec.Storage == change.StorageMovesAfterNarrowing {
		move := "wait for spec.storageMoved"
		if c := ptr.Deref(v.Change.Spec.VolumeAttributesClassName, ""); c != "" {
			move = fmt.Sprintf("set the claim's VolumeAttributesClass to %q and wait until the volume has it", c)
		}
		out = append(out, move)
	}
	if !v.route.skipLast && v.route.kind != change.None {
		out = append(out, "write the target to the volume")
	}
	return out
}
