package affinity

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// markOld is how long a mark may stand before people are told of it.
const markOld = 5 * time.Minute

// MarkName is the name of the Lease that marks a volume, in the manager's
// namespace: one change of one volume at a time.
func MarkName(volume types.UID) string { return "sluice-affinity-" + string(volume) }

// fence makes sure that no Pod is bound outside, and that none can still be,
// before a write that takes nodes away. False: it is closed.
//
// The mark comes first; a binding that the gate admitted before it carries an
// older version of its Pod, and touching the Pod makes that void. The
// observation after both is the last word: who is bound now is all that will be.
func (v *view) fence() (Decision, bool) {
	if v.Mark != nil && !v.ownsMark() {
		return v.markTaken(), true
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhyMark}, true
	}
	if v.Mark == nil {
		// What is in the way now would be so under the mark, too.
		if out := v.outsiders(v.after()); len(out) > 0 && !v.drains() {
			return v.stepBack(out), true
		}
		return Decision{Why: WhyMark, Step: CreateMark{VolumeUID: v.Volume.UID, Target: v.after().Affinity()}}, true
	}
	if v.journal().MarkUID != v.Mark.UID {
		return v.touch(), true
	}
	out := v.outsiders(v.after())
	if len(out) == 0 {
		return Decision{}, false
	}
	if !v.drains() {
		return v.stepBack(out), true
	}
	if d, ok := v.evict(out); ok {
		return d, true
	}
	return v.wait(WhySettling, change.PhaseFencing, change.ReasonDraining,
		"No Pod is let onto the nodes that are lost; waiting: "+sentence(out), out), true
}

// touch voids every binding that was admitted before the mark, by changing the
// Pods that they are for. Where no gate is in force that is of no use: what was
// being bound is given the time to appear instead.
func (v *view) touch() Decision {
	d := v.note(WhyTouch, func(j *change.Journal) { j.MarkUID = v.Mark.UID })
	w, ok := d.Step.(WriteStatus)
	if !ok {
		return d
	}
	w.Status.GateCoverage = v.Gate.Coverage
	w.Status.SettledBy = change.SettledByWait
	d.Step = w
	if v.Gate.InForce {
		w.Status.SettledBy = change.SettledByFence
		d.Step = TouchPods{Pods: names(v.unbound()), Status: w.Status}
	}
	return d
}

// stepBack is what a change does that is blocked although it has begun: it
// gives the mark back and waits, restricting nobody.
func (v *view) stepBack(out []change.Blocker) Decision {
	if d, ok := v.releaseMark(WhyBlocked); ok {
		return d
	}
	return v.wait(WhyBlocked, change.PhaseBlocked, change.ReasonPodsInTheWay, "Waiting, without restricting anybody: "+sentence(out), out)
}

// ownsMark says that the mark is held by this very change.
func (v *view) ownsMark() bool {
	return v.Mark != nil && v.Mark.Spec.HolderIdentity != nil && *v.Mark.Spec.HolderIdentity == string(v.Change.UID)
}

// markTaken is the case of another change of the same volume.
func (v *view) markTaken() Decision {
	holder := "somebody"
	if v.Mark.Spec.HolderIdentity != nil {
		holder = *v.Mark.Spec.HolderIdentity
	}
	for _, ref := range v.Mark.OwnerReferences {
		holder = fmt.Sprintf("NodeAffinityChange %q", ref.Name)
	}
	message := fmt.Sprintf("%s of the same volume is under way", holder)
	if age := v.Now.Sub(v.Mark.CreationTimestamp.Time); age > markOld {
		message = fmt.Sprintf("%s holds the volume's mark for %s already; see kubectl sluice affinity status", holder, age.Round(time.Second))
	}
	return v.wait(WhyMarkTaken, change.PhaseBlocked, change.ReasonAnotherChange, message, nil)
}

// releaseMark deletes the change's own mark, if it stands.
func (v *view) releaseMark(why string) (Decision, bool) {
	switch {
	case !v.ownsMark():
		return Decision{}, false
	case !v.Live:
		return Decision{NeedLive: true, Why: why}, true
	}
	return Decision{Why: why, Step: DeleteMark{Name: v.Mark.Name, UID: v.Mark.UID}}, true
}

// drains says that Pods are kept off the nodes that are lost for as long as it
// takes.
func (v *view) drains() bool {
	return v.Change.Spec.RunningPods == change.RunningPodsDrain || v.Change.Spec.RunningPods == change.RunningPodsEvict
}

// evict evicts the first Pod in the way that is not ending yet, if that is
// wanted.
func (v *view) evict(out []change.Blocker) (Decision, bool) {
	if v.Change.Spec.RunningPods != change.RunningPodsEvict {
		return Decision{}, false
	}
	if left := recheck - v.Now.Sub(v.Refused.At); v.Refused.Reason != "" && left > 0 {
		return Decision{}, false // a budget allows no more at the moment
	}
	for _, b := range out {
		for i := range v.Pods {
			p := &v.Pods[i]
			if b.Kind != "Pod" || p.Name != b.Name || p.Namespace != b.Namespace || p.DeletionTimestamp != nil {
				continue
			}
			return Decision{Why: WhySettling, Step: EvictPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}}, true
		}
	}
	return Decision{}, false
}

// intruded says that a Pod runs outside although nothing was there at the time
// of the write: it was bound while nothing fenced the volume.
func (v *view) intruded(out []change.Blocker) bool {
	if v.drains() || v.Change.Status.SettledBy != change.SettledByWait {
		return false
	}
	for _, b := range out {
		for i := range v.Pods {
			p := &v.Pods[i]
			if b.Kind == "Pod" && p.Name == b.Name && p.Namespace == b.Namespace && Started(p) {
				return true
			}
		}
	}
	return false
}

// Started says that any container of a Pod was ever started, or may have been:
// only what is proved never to have run may be removed without asking.
func Started(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodPending {
		return true
	}
	statuses := 0
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			statuses++
			if s.ContainerID != "" || s.RestartCount > 0 || (s.Started != nil && *s.Started) || s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
				return true
			}
		}
	}
	if statuses == 0 && p.Status.StartTime != nil {
		return true // the kubelet has seen it and says nothing of its containers
	}
	if p.Status.PodIP != "" && !p.Spec.HostNetwork {
		return true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func names(pods []*corev1.Pod) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(pods))
	for _, p := range pods {
		out = append(out, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
	return out
}

// nobody is the set that admits no node.
var nobody = nodeset.Of(&corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}})
