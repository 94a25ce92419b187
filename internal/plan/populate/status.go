package populate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// lasting is how long a phase lasts before it is worth a write of its own: a
// population that is faster goes straight from its record to Succeeded. It is
// well within the five seconds in which a claim has to say where it is.
const lasting = 3 * time.Second

// clockSkew is how far the clocks of a cluster's programs may be apart.
const clockSkew = 10 * time.Second

// report is what to tell about where a claim is.
type report struct {
	phase   v1alpha1.Phase
	reason  string
	message string
	// event is the type of the event that tells it, empty for none. It is told
	// when the reason changes, and when the population ends as Failed.
	event string
	// keepSource leaves the source's revision as it was taken down.
	keepSource bool
	// change, if set, changes more of the status.
	change func(*v1alpha1.PopulationStatus)
}

// say decides to write the report where the Population does not say it yet, and
// to look again after a while. Without a Population one is made first.
func (v *view) say(why string, again time.Duration, r report) Decision {
	if v.pop == nil {
		return v.createPopulation(why, 0)
	}
	step, changed := v.write(r)
	if !changed {
		return Decision{RequeueAfter: again, Why: why}
	}
	d := Decision{Step: step, RequeueAfter: again, Why: why}
	ends := r.phase == v1alpha1.PhaseFailed && v.pop.Status.Phase != r.phase
	if r.event != "" && (ends || v.reason() != r.reason) {
		d.Event = &Event{Type: r.event, Reason: r.reason, Message: r.message}
	}
	return d
}

// reason is the word that the Population has for where the claim is.
func (v *view) reason() string {
	if c := meta.FindStatusCondition(v.status().Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// write makes the status that a report amounts to, and says whether it differs
// from the one there is.
func (v *view) write(r report) (WriteStatus, bool) {
	old := v.status()
	st := *old.DeepCopy()
	st.Phase = r.phase
	st.ObservedGeneration = v.pop.Generation
	if v.Populator != nil {
		st.Populator = v.Populator.Name
	}
	if !r.keepSource && v.settling(r.phase) {
		v.source(&st)
	}
	if r.change != nil {
		r.change(&st)
	}
	v.condition(&st, v1alpha1.ConditionReady, r.phase == v1alpha1.PhaseSucceeded, r.reason, r.message)
	populated := r.phase == v1alpha1.PhaseBinding || r.phase == v1alpha1.PhaseSucceeded
	v.condition(&st, v1alpha1.ConditionPopulated, populated, populatedReason(populated), "")
	w := WriteStatus{
		Namespace: v.pop.Namespace, Name: v.pop.Name, UID: v.pop.UID, ResourceVersion: v.pop.ResourceVersion,
		Status: st,
	}
	return w, !equality.Semantic.DeepEqual(old, st)
}

func populatedReason(populated bool) string {
	if populated {
		return v1alpha1.ReasonPopulated
	}
	return "NotPopulated"
}

// settling says that the source's revision may still be taken down: not once a
// worker reads it, whose revision was taken down when it was made.
func (v *view) settling(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseWaiting || p == v1alpha1.PhaseProvisioning || (p == v1alpha1.PhasePopulating && !v.recorded())
}

// source takes down the revision of the source as observed.
func (v *view) source(st *v1alpha1.PopulationStatus) {
	ref := v.claim.Spec.DataSourceRef
	if ref == nil {
		return
	}
	s := v1alpha1.SourceRevision{Kind: ref.Kind, Name: ref.Name, Summary: ref.Kind + "/" + ref.Name}
	if ref.APIGroup != nil {
		s.Group = *ref.APIGroup
	}
	if s.Namespace = v.Source.Namespace; s.Namespace != "" && s.Namespace != v.Namespace {
		s.Summary = fmt.Sprintf("%s/%s/%s", s.Namespace, ref.Kind, ref.Name)
	}
	found := v.Source.State == SourceFound && v.Source.Invalid == ""
	if v.Source.State == SourceFound {
		s.UID, s.Generation = v.Source.UID, v.Source.Generation
	}
	st.Source = &s
	reason, message := "SourceRead", "" // the summary says the rest
	if !found {
		reason, message = v.sourceProblem()
	}
	v.condition(st, v1alpha1.ConditionSourceResolved, found, reason, message)
}

func (v *view) condition(st *v1alpha1.PopulationStatus, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	// The time is rounded as the API server stores it, so that writing the same
	// again is seen to change nothing.
	at := metav1.NewTime(v.Now.Truncate(time.Second))
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: st.ObservedGeneration, LastTransitionTime: at,
	})
}

// time is the observation's time as the API stores times.
func (v *view) time() *metav1.Time {
	t := metav1.NewTime(v.Now.Truncate(time.Second))
	return &t
}

// createPopulation decides to make the record of the claim. An attempt may be
// allocated on a live observation only.
func (v *view) createPopulation(why string, attempt int32) Decision {
	if v.Population != nil {
		// Something else stands under the name; the rule impostor has it go.
		return Decision{RequeueAfter: recheck, Why: WhyPopulationGoing}
	}
	if attempt > 0 && !v.Live {
		return Decision{Need: NeedLive, Why: why}
	}
	temporaries := ""
	if attempt > 0 {
		temporaries = v.elsewhere(v.place)
	}
	return Decision{Why: why, Step: CreatePopulation{Population: &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: v.Name,
			Labels:          map[string]string{v1alpha1.LabelClaimUID: string(v.ClaimUID)},
			OwnerReferences: ownedBy(v.claim),
		},
		Spec: v1alpha1.PopulationSpec{ClaimUID: v.ClaimUID, Attempt: attempt, Namespace: temporaries},
	}}}
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
