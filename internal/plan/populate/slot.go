package populate

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// crowdPatience is how long a claim of a burst may wait for its turn to be begun
// before that is told: most have been filled by then, and to tell a thousand
// claims takes time from filling them. Waiting for a limit that somebody set is
// told as soon as any other.
const crowdPatience = 15 * time.Second

// slot is the last check before an attempt is allocated: the claim's turn.
func (v *view) slot() (Decision, bool) {
	s := v.Slot
	switch {
	case s == nil:
		return Decision{Need: NeedSlot, Why: WhySlot}, true
	case s.Granted:
		return Decision{}, false
	}
	patience := lasting
	if s.Kind == slots.OfMotion {
		patience = crowdPatience
	}
	if young := v.left(patience, v.claim.CreationTimestamp.Time); v.pop == nil && young > 0 {
		return Decision{RequeueAfter: young, Why: WhySlot}, true
	}
	message := limited(s)
	if c := meta.FindStatusCondition(v.status().Conditions, v1alpha1.ConditionReady); c != nil &&
		c.Reason == v1alpha1.ReasonWaitingForSlot && strings.HasPrefix(c.Message, message) {
		message = c.Message // how many are ahead changes all the time
	} else {
		message += fmt.Sprintf("; %d were ahead of it when it came", s.Ahead)
	}
	return v.wait(WhySlot, &obstacle{reason: v1alpha1.ReasonWaitingForSlot, message: message}), true
}

// limited names the limit that a claim waits for.
func limited(s *slots.Verdict) string {
	switch s.Kind {
	case slots.OfAll:
		return fmt.Sprintf("The claim waits its turn: at most %d are filled at the same time", s.Limit)
	case slots.OfMotion:
		return fmt.Sprintf("The claim waits its turn: at most %d are begun or handed over at the same time", s.Limit)
	case slots.OfNamespace, slots.OfClass, slots.OfNode, slots.OfSource, slots.OfPopulator:
	}
	return fmt.Sprintf("The claim waits its turn: at most %d of %s %q are filled at the same time", s.Limit, s.Kind, s.Name)
}

// Stage is what of a population limits are about.
type Stage int

// The stages.
const (
	// Idle holds no slot: nothing is begun, or it has ended.
	Idle Stage = iota
	// Moving holds slots, and is being begun or handed over.
	Moving
	// Working holds slots while its worker works.
	Working
)

// StageOf says which stage a claim is in. A worker that has not ended holds its
// slots whatever became of its claim and of its attempt.
func StageOf(o Observed) Stage {
	v := look(o)
	for i := range v.Workers {
		if w := &v.Workers[i]; w.Labels[v1alpha1.LabelRole] == v1alpha1.RoleWorker && !ended(w) {
			if c := workerStatus(w); c != nil && c.State.Running != nil {
				return Working
			}
			if v.claim == nil || v.failed() != nil || w != v.worker {
				return Working // it is stopped by its kubelet
			}
			return Moving
		}
	}
	if v.claim == nil || v.pop == nil || v.n == 0 || v.failed() != nil {
		return Idle
	}
	switch v.pop.Status.Phase {
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed:
		return Idle
	case v1alpha1.PhaseWaiting, v1alpha1.PhaseProvisioning, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding:
	}
	return Moving
}

// SlotOf is a claim as far as limits concern it. The source is named in the
// caller's way.
func SlotOf(o Observed, source string) slots.Claim {
	c := slots.Claim{UID: o.ClaimUID, Namespace: o.Namespace, Name: o.Name, Source: source}
	if o.Claim != nil && o.Claim.UID == o.ClaimUID {
		c.Created = o.Claim.CreationTimestamp.Time
		c.Node = o.Claim.Annotations[annSelectedNode]
		if o.Claim.Spec.StorageClassName != nil {
			c.Class = *o.Claim.Spec.StorageClassName
		}
	}
	if i := len(o.Workers) - 1; i >= 0 && nodeOf(&o.Workers[i]) != "" {
		c.Node = nodeOf(&o.Workers[i])
	}
	if o.Populator != nil {
		c.Populator, c.PopulatorLimit = o.Populator.Name, int(o.Populator.Spec.MaxConcurrent)
	}
	return c
}

// nodeOf is the node that a worker loads; empty once it has ended.
func nodeOf(w *corev1.Pod) string {
	if ended(w) {
		return ""
	}
	return w.Spec.NodeName
}
