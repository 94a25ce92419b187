package affinity

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// notBegun is the rule of a change without a journal: the checks, in order. All
// that it writes is the change itself.
func notBegun(v *view) (Decision, bool) {
	if v.Change.Status.Journal != nil {
		return v.begun()
	}
	if v.aborted() {
		return v.end(WhyGivenUp, change.PhaseAborted, change.ReasonAborted, "Given up before anything was written"), true
	}
	if reason, message := v.invalid(); reason != "" {
		return v.end(WhyInvalid, change.PhaseFailed, reason, message), true
	}
	if v.route.kind == change.None && len(v.labels(v.to)) == 0 && v.Change.Spec.VolumeAttributesClassName == nil {
		return v.end(WhyNothing, change.PhaseSucceeded, change.ReasonNothingToDo,
			fmt.Sprintf("PersistentVolume %q has this affinity already", v.Volume.Name)), true
	}
	if !v.approved() {
		return v.wait(WhyPlanned, change.PhasePlanned, change.ReasonNotApproved,
			"Planned; set spec.approved to true to have it done", v.obstacles()), true
	}
	if v.Change.Spec.State == change.Paused {
		return v.wait(WhyPaused, change.PhasePaused, change.ReasonPaused, "Paused before it began; set spec.state to Active", nil), true
	}
	if left := refusedAgain - v.Now.Sub(v.Refused.At); v.Refused.Reason != "" && left > 0 {
		d := v.wait(WhyRefused, change.PhaseBlocked, v.Refused.Reason, v.Refused.Message, nil)
		d.RequeueAfter = left
		return d, true
	}
	if out := v.obstacles(); len(out) > 0 && v.Change.Spec.RunningPods == change.RunningPodsBlock {
		return v.wait(WhyBlocked, change.PhaseBlocked, change.ReasonPodsInTheWay, "Waiting, without restricting anybody: "+sentence(out), out), true
	}
	if m := v.Mark; m != nil && !v.ownsMark() {
		return v.markTaken(), true
	}
	if !v.Live {
		return Decision{NeedLive: true, Why: WhyBegin}, true
	}
	if !v.hasFinalizer() {
		return Decision{Step: SetFinalizer{Present: true}, Why: WhyFinalizer}, true
	}
	return v.begin(), true
}

// invalid says why a change cannot be done, whatever happens.
func (v *view) invalid() (reason, message string) {
	spec := v.Change.Spec
	if problems := nodeset.Problems(spec.NodeAffinity); len(problems) > 0 {
		return change.ReasonInvalidTarget, strings.Join(problems, "; ")
	}
	if spec.AnyNode && v.Volume.Spec.Local != nil {
		return change.ReasonInvalidTarget, fmt.Sprintf("PersistentVolume %q is a local volume, which must name its node", v.Volume.Name)
	}
	if v.route.tangled {
		return change.ReasonInvalidTarget, fmt.Sprintf(
			"Old and new affinity have more than %d terms in common; write them in fewer", nodeset.MaxTerms)
	}
	if kept, gained, _ := Compare(v.from, v.to, v.Nodes); len(kept)+len(gained) == 0 && len(v.Nodes) > 0 {
		return change.ReasonNoNodeLeft, fmt.Sprintf("No node of this cluster matches the target: PersistentVolume %q could be used nowhere", v.Volume.Name)
	}
	return "", ""
}

// obstacles are what stands in the way of the first write that takes nodes away.
func (v *view) obstacles() []change.Blocker {
	switch {
	case v.route.offline:
		return v.outsiders(nobody)
	case !v.route.skipFirst:
		return v.outsiders(v.route.first)
	case v.Change.Spec.Storage == change.StorageMovesAfterNarrowing && v.route.kind == change.Widen:
		return nil
	}
	return v.outsiders(v.to)
}

// begun is the rule of a journal that was begun and speaks of no write yet: the
// first one is fenced, or there is none before the storage moves.
func (v *view) begun() (Decision, bool) {
	if v.journal().Stage != change.StageBegun || v.aborted() || v.Change.Spec.State == change.Paused || !v.isBefore() {
		return Decision{}, false
	}
	switch {
	case v.route.offline:
		// Nothing can be written that is true before and after. The mark lets no
		// Pod be bound until the storage has moved.
		if v.storageMoved() {
			return Decision{}, false
		}
		return v.fence()
	case !v.route.skipFirst:
		return v.stage(WhyBegin, change.StageNarrowing), true
	case v.Change.Spec.Storage == change.StorageMovesAfterNarrowing:
		return Decision{}, false // the storage first
	}
	return v.stage(WhyBegin, change.StageTarget), true
}
