package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/event"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/registration"
)

// Verdict is what the story comes to.
type Verdict string

// The verdicts.
const (
	// Settled: the claim has what it asked for.
	Settled Verdict = "Settled"
	// OnItsWay: it gets it without anybody's help.
	OnItsWay Verdict = "OnItsWay"
	// MustAct: nothing happens until someone acts.
	MustAct Verdict = "SomeoneMustAct"
	// NotServed: the claim is none of Sluice's business.
	NotServed Verdict = "NotServed"
)

// Story is all about one claim, for people and, as JSON, for programs.
type Story struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`

	Verdict Verdict `json:"verdict"`
	// Headline says in one sentence where the claim is.
	Headline string `json:"headline"`
	Phase    string `json:"phase,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	Progress string `json:"progress,omitempty"`

	Source    string           `json:"source,omitempty"`
	Digest    string           `json:"digest,omitempty"`
	Populator string           `json:"populator,omitempty"`
	Attempt   int32            `json:"attempt,omitempty"`
	Result    *v1alpha1.Result `json:"result,omitempty"`
	Volume    string           `json:"volume,omitempty"`
	Node      string           `json:"node,omitempty"`

	WaitsFor string `json:"waitsFor"`
	Next     string `json:"next"`
	Do       string `json:"do"`

	Happened    []Happening `json:"happened,omitempty"`
	Temporaries []Temporary `json:"temporaries,omitempty"`
	// Notes are what is odd beside the main thing.
	Notes []string `json:"notes,omitempty"`
	// Missing are rights that would have told more.
	Missing []string `json:"missingRights,omitempty"`
}

// Happening is one thing that happened.
type Happening struct {
	At     time.Time `json:"at"`
	On     string    `json:"on"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	// Warning: someone thought so.
	Warning bool `json:"warning,omitempty"`
	// Times is how often it happened, the last time At.
	Times int32 `json:"times"`
}

// Temporary is a prime or worker that is there now.
type Temporary struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	State string `json:"state"`
}

const (
	// looksWithin and letsGoWithin are how long a manager that works takes at
	// most to look at a claim, and to let go of one that is deleted.
	looksWithin  = 30 * time.Second
	letsGoWithin = time.Minute

	// snapshotGroup is the API group of sources that CSI drivers restore.
	snapshotGroup = "snapshot.storage.k8s.io"

	// managerNotSeen is what to do where the manager seems to be away.
	managerNotSeen = "Have an administrator look at the manager: kubectl -n sluice-system get pods"
)

// Tell makes the story of the facts. It reads nothing and knows no time but
// the facts'.
func Tell(f Facts) Story {
	c := f.Claim
	s := Story{
		Namespace: c.Namespace, Name: c.Name, UID: c.UID,
		Volume: c.Spec.VolumeName, Source: sourceOf(f), Missing: f.Missing,
		Happened: happened(f), Temporaries: temporaries(f),
	}
	if f.Populator != nil {
		s.Populator = f.Populator.Name
	}
	pop := populationOf(f)
	if pop != nil {
		s.recall(pop, f.Now)
	}
	switch {
	case c.DeletionTimestamp != nil:
		s.going(f)
	case c.Status.Phase == corev1.ClaimLost:
		s.verdict(MustAct, fmt.Sprintf("The claim has lost its volume %q.", c.Spec.VolumeName), advice{
			waits: "nothing: its data is gone", next: "nothing", do: "Delete the claim and create it again to have it filled anew"})
	case pop != nil:
		s.recorded(f, pop)
	default:
		s.unrecorded(f)
	}
	s.notes(f)
	return s
}

// populationOf returns the Population if it is of this claim, not of one that
// had its name before.
func populationOf(f Facts) *v1alpha1.Population {
	if f.Population == nil || f.Population.Spec.ClaimUID != f.Claim.UID {
		return nil
	}
	return f.Population
}

func (s *Story) verdict(v Verdict, headline string, a advice) {
	s.Verdict, s.Headline, s.WaitsFor, s.Next, s.Do = v, headline, a.waits, a.next, a.do
}

// recall takes over what the Population records.
func (s *Story) recall(p *v1alpha1.Population, now time.Time) {
	st := &p.Status
	s.Phase, s.Attempt, s.Result, s.Node = string(st.Phase), p.Spec.Attempt, st.Result, st.NodeName
	s.Volume = cmp.Or(st.VolumeName, s.Volume)
	s.Populator = cmp.Or(st.Populator, s.Populator)
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil {
		s.Reason, s.Message = c.Reason, c.Message
	}
	if src := st.Source; src != nil {
		s.Digest = src.Digest
		if src.Generation > 0 {
			s.Source = fmt.Sprintf("%s (generation %d)", src.Summary, src.Generation)
		}
	}
	s.Progress = progress(st.Progress, st.Phase == v1alpha1.PhasePopulating, now)
}

// going tells of a claim that is being deleted.
func (s *Story) going(f Facts) {
	c := f.Claim
	held := "Kubernetes' garbage collector"
	if len(c.Finalizers) > 0 {
		held = "finalizers " + strings.Join(c.Finalizers, ", ")
	}
	a := advice{waits: held, next: "the claim vanishes", do: "Nothing"}
	v := OnItsWay
	if slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") {
		a.waits = "the Pods that use it to end (" + held + ")"
		a.do = "End the Pods that use the claim"
	}
	if slices.Contains(c.Finalizers, v1alpha1.FinalizerPopulation) && f.Now.Sub(c.DeletionTimestamp.Time) > letsGoWithin {
		v = MustAct
		a.do = managerNotSeen + "; if it does not come back: kubectl sluice release pvc/" + c.Name
	}
	s.verdict(v, "The claim is being deleted.", a)
}

// recorded tells of a claim with a Population.
func (s *Story) recorded(f Facts, p *v1alpha1.Population) {
	st, c := &p.Status, f.Claim
	a := adviceOn(s.Reason)
	switch st.Phase {
	case v1alpha1.PhaseSucceeded:
		headline := fmt.Sprintf("The claim is bound to volume %q, filled from %s", s.Volume, s.Source)
		if st.StartedAt != nil && st.CompletedAt != nil {
			headline += " in " + span(st.CompletedAt.Sub(st.StartedAt.Time))
		}
		s.verdict(Settled, headline+".", adviceOn(v1alpha1.ReasonPopulated))
	case v1alpha1.PhaseFailed:
		a.waits, a.next = "a change of its source or of its Populator", "another attempt, as soon as one of them changes"
		if s.Reason == v1alpha1.ReasonBoundToForeignVolume {
			a = adviceOn(s.Reason)
		}
		s.verdict(MustAct, fmt.Sprintf("The claim was not filled, and no further attempt is made: %s.", s.Reason), a)
	case v1alpha1.PhaseProvisioning:
		headline := "A volume is being provisioned."
		if s.Reason == v1alpha1.ReasonProvisioningFailed {
			headline = "The storage driver has not been able to provision a volume yet."
		}
		s.verdict(OnItsWay, headline, a)
	case v1alpha1.PhasePopulating:
		headline := fmt.Sprintf("The volume is being filled, attempt %d.", p.Spec.Attempt)
		switch {
		case st.Fill != nil:
			headline, a = filling(p, a)
		case a.act:
			headline = fmt.Sprintf("The worker of attempt %d does not start: %s.", p.Spec.Attempt, s.Reason)
		}
		s.verdict(OnItsWay, headline, a)
	case v1alpha1.PhaseBinding:
		s.verdict(OnItsWay, "The volume is filled; the claim is being bound to it.", a)
	case v1alpha1.PhaseWaiting:
		if r := st.Result; r != nil && !r.Succeeded && r.Reason == s.Reason {
			a.act, a.waits, a.next = false, "the time of its next attempt", nextAttempt
			s.verdict(OnItsWay, fmt.Sprintf("Attempt %d failed and will be repeated: %s.", r.Attempt, s.Reason), a)
			break
		}
		s.verdict(OnItsWay, "The claim waits for "+a.waits+".", a)
	default:
		s.verdict(OnItsWay, "The manager has just begun to look at the claim.", advice{waits: "the manager", next: nextStart, do: "Nothing"})
	}
	if a.act && s.Verdict == OnItsWay {
		s.Verdict = MustAct
	}
	if s.Verdict != Settled && f.Ignored {
		s.ignored(c)
	}
}

// filling tells of a volume that a plugin fills, without a worker.
func filling(p *v1alpha1.Population, a advice) (string, advice) {
	fill := p.Status.Fill
	reason := ""
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		reason = c.Reason
	}
	switch {
	case reason == v1alpha1.ReasonPopulating, reason == v1alpha1.ReasonPopulationStarted:
		a.waits = fmt.Sprintf("the plugin of Populator %q to fill volume %q (fill %s)", fill.Populator, p.Status.VolumeName, fill.ID)
	case a.act:
		return fmt.Sprintf("The plugin of Populator %q, which fills the volume in attempt %d, does not answer: %s.", fill.Populator, p.Spec.Attempt, reason), a
	}
	return fmt.Sprintf("The plugin of Populator %q fills the volume, attempt %d.", fill.Populator, p.Spec.Attempt), a
}

// unrecorded tells of a claim that Sluice has written nothing about.
func (s *Story) unrecorded(f Facts) {
	c, ref := f.Claim, f.Claim.Spec.DataSourceRef
	bound := c.Spec.VolumeName != ""
	nothing := advice{waits: "nothing that Sluice could give", next: "nothing by Sluice", do: "Nothing"}
	switch {
	case ref == nil:
		s.verdict(NotServed, "The claim names no data source, so there is nothing to fill it from.", nothing)
	case ptr.Deref(ref.APIGroup, "") == "" || *ref.APIGroup == snapshotGroup:
		s.verdict(NotServed, fmt.Sprintf("The claim is filled from a %s, which the storage driver does by itself.", ref.Kind), nothing)
	case bound:
		s.verdict(NotServed, fmt.Sprintf("The claim is bound to volume %q, and Sluice has no record of having filled it.", c.Spec.VolumeName), nothing)
	case f.Elsewhere != "":
		s.verdict(NotServed, fmt.Sprintf("Claims of %s are another controller's to fill: VolumePopulator %q registers the kind.", sourceKind(c), f.Elsewhere), advice{
			waits: "that controller", next: "nothing by Sluice", do: "Look for events of that controller on the claim"})
	case f.Ignored:
		s.ignored(c)
	case f.NoSluice:
		s.verdict(MustAct, "This cluster does not know Sluice's kinds.", advice{
			waits: "Sluice, or another populator of its source's kind", next: nextStart, do: "Have an administrator install Sluice"})
	case f.Populator == nil && lacks(f, "populators.sluice.dev"):
		s.verdict(OnItsWay, "The manager has written nothing about the claim, and you may not see who serves its kind.", advice{
			waits: "the manager", next: nextStart, do: "Ask again in a minute, or ask an administrator"})
	case f.Populator == nil:
		s.Reason = v1alpha1.ReasonUnrecognizedKind
		s.verdict(MustAct, fmt.Sprintf("No Populator serves %s.", sourceKind(c)), adviceOn(s.Reason))
	case !registration.Accepted(f.Populator):
		s.unaccepted(f)
	case f.Now.Sub(c.CreationTimestamp.Time) <= looksWithin:
		s.verdict(OnItsWay, "The claim is new and the manager has yet to look at it.", advice{waits: "the manager", next: nextStart, do: "Nothing"})
	case lacks(f, "populations.sluice.dev"):
		s.verdict(OnItsWay, "You may not see the record of the claim; the events below are all there is to tell.", advice{
			waits: "what the newest event says", next: nextTry, do: "Ask for the right to get populations.sluice.dev"})
	default:
		s.verdict(MustAct, "The claim should be filled, but the manager has written nothing about it.", advice{
			waits: "the manager", next: nextStart, do: managerNotSeen})
	}
}

func (s *Story) ignored(c *corev1.PersistentVolumeClaim) {
	s.verdict(MustAct, fmt.Sprintf("Namespace %q is labelled %s=true, so Sluice leaves the claim alone.", c.Namespace, v1alpha1.LabelIgnore), advice{
		waits: "somebody else to fill it", next: nextStart + ", once the label is gone", do: "Remove the label from the namespace, if the claim is to be filled by Sluice"})
}

// unaccepted tells of a claim whose Populator is not served.
func (s *Story) unaccepted(f Facts) {
	c := meta.FindStatusCondition(f.Populator.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != "False" || c.Reason == "" {
		s.verdict(OnItsWay, fmt.Sprintf("Populator %q has yet to be looked at.", f.Populator.Name), advice{
			waits: "the manager to accept the Populator", next: nextStart, do: "Nothing. If it lasts: " + managerNotSeen})
		return
	}
	s.Reason, s.Message = c.Reason, c.Message
	s.verdict(MustAct, fmt.Sprintf("Populator %q, which is for %s, is not served: %s.", f.Populator.Name, sourceKind(f.Claim), c.Reason), adviceOn(c.Reason))
}

// notes tells what is odd beside the main thing.
func (s *Story) notes(f Facts) {
	note := func(format string, args ...any) { s.Notes = append(s.Notes, fmt.Sprintf(format, args...)) }
	if p := f.Population; p != nil && p.Spec.ClaimUID != f.Claim.UID {
		note("The Population of this name is of a claim that had the name before (UID %s); it goes before this claim is filled", p.Spec.ClaimUID)
	}
	p := populationOf(f)
	if p == nil {
		return
	}
	st := &p.Status
	if pr := st.Prime; pr != nil && st.Phase != v1alpha1.PhaseSucceeded && !slices.ContainsFunc(f.Primes, func(c corev1.PersistentVolumeClaim) bool { return c.Name == pr.Name }) {
		if st.Phase != v1alpha1.PhaseBinding {
			note("The temporary claim %q of this attempt is gone; the manager makes up for it", pr.Name)
		}
	}
	if src := st.Source; src != nil && src.UID != "" && f.Source.Readable {
		switch {
		case !f.Source.Found:
			note("The source %s no longer exists", src.Summary)
		case f.Source.UID != src.UID:
			note("The source %s was deleted and created again since", src.Summary)
		case f.Source.Generation != src.Generation:
			note("The source %s has changed since, it is at generation %d; a claim is filled once and does not follow", src.Summary, f.Source.Generation)
		}
	}
	if s.Volume != "" && f.Volume == nil && !lacks(f, "persistentvolumes ") {
		note("Volume %q does not exist", s.Volume)
	}
	if st.Phase == v1alpha1.PhaseSucceeded && f.Claim.Spec.VolumeName != st.VolumeName {
		note("The claim is bound to volume %q, but %q was filled", f.Claim.Spec.VolumeName, st.VolumeName)
	}
	if st.Phase == v1alpha1.PhaseSucceeded && len(s.Temporaries) > 0 {
		note("Temporaries are still there; the manager removes them")
	}
}

// lacks says that a right on a resource is missing.
func lacks(f Facts, resource string) bool {
	return slices.ContainsFunc(f.Missing, func(right string) bool { return strings.Contains(right, " "+resource) })
}

func sourceKind(c *corev1.PersistentVolumeClaim) string {
	return kindOf(c.Spec.DataSourceRef).String()
}

// sourceOf names the source as the claim does.
func sourceOf(f Facts) string {
	ref := f.Claim.Spec.DataSourceRef
	if ref == nil {
		return ""
	}
	name := ref.Kind + "/" + ref.Name
	if ns := sourceNamespace(f.Claim); ns != f.Claim.Namespace {
		return ns + "/" + name
	}
	return name
}

// temporaries lists those that are there.
func temporaries(f Facts) []Temporary {
	var all []Temporary
	state := func(deleted bool, phase string) string {
		if deleted {
			return phase + ", going"
		}
		return phase
	}
	for _, p := range f.Primes {
		text := string(p.Status.Phase)
		if p.Spec.VolumeName != "" {
			text += " to " + p.Spec.VolumeName
		}
		text = state(p.DeletionTimestamp != nil, text)
		if p.DeletionTimestamp != nil && slices.Contains(p.Finalizers, v1alpha1.FinalizerPlugin) {
			text += " once its plugin has cleaned up"
		}
		all = append(all, Temporary{Kind: "prime", Name: p.Name, State: text})
	}
	for _, w := range f.Workers {
		text := string(w.Status.Phase)
		if w.Spec.NodeName != "" {
			text += " on " + w.Spec.NodeName
		}
		for _, c := range w.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
				text += ", " + c.State.Waiting.Reason
			}
		}
		kind := v1alpha1.RoleWorker
		if w.Labels[v1alpha1.LabelRole] == v1alpha1.RoleScout {
			kind = v1alpha1.RoleScout
		}
		all = append(all, Temporary{Kind: kind, Name: w.Name, State: state(w.DeletionTimestamp != nil, text)})
	}
	slices.SortStableFunc(all, func(a, b Temporary) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// happened puts events and what the Population recorded in order.
func happened(f Facts) []Happening {
	all := []Happening{{At: f.Claim.CreationTimestamp.Time, On: "claim", Reason: "Created", Text: "The claim was created", Times: 1}}
	if p := populationOf(f); p != nil {
		if t := p.Status.StartedAt; t != nil {
			all = append(all, Happening{At: t.Time, On: "claim", Reason: "Started", Text: "The first attempt began", Times: 1})
		}
		if r := p.Status.Result; r != nil && r.EndedAt != nil && !r.Succeeded {
			all = append(all, Happening{At: r.EndedAt.Time, On: "claim", Reason: r.Reason, Text: fmt.Sprintf("Attempt %d ended: %s", r.Attempt, r.Message), Times: 1, Warning: true})
		}
		if t := p.Status.CompletedAt; t != nil {
			all = append(all, Happening{At: t.Time, On: "claim", Reason: "Completed", Text: "The claim was seen bound to the filled volume", Times: 1})
		}
	}
	for i := range f.Events {
		e := &f.Events[i]
		on := "claim"
		switch {
		case e.InvolvedObject.Name == f.Claim.Name:
		case strings.HasPrefix(attemptOf(f, e.InvolvedObject.Name), "-"+v1alpha1.RoleScout):
			on = strings.TrimPrefix(attemptOf(f, e.InvolvedObject.Name), "-")
		case e.InvolvedObject.Kind == "Pod":
			on = "worker" + attemptOf(f, e.InvolvedObject.Name)
		default:
			on = "prime" + attemptOf(f, e.InvolvedObject.Name)
		}
		h := Happening{At: event.Time(e), On: on, Reason: e.Reason, Text: e.Message, Times: max(e.Count, 1), Warning: e.Type == corev1.EventTypeWarning}
		if e.Series != nil {
			h.Times = max(h.Times, e.Series.Count)
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b Happening) int { return a.At.Compare(b.At) })
	return all
}

// attemptOf is the attempt that a temporary's name tells, as a suffix.
func attemptOf(f Facts, name string) string {
	n, ok := strings.CutPrefix(name, strings.TrimSuffix(populate.TemporaryName(f.Claim.UID, 0), "0"))
	if !ok {
		return ""
	}
	return "-" + n
}
