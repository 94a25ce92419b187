package affinity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// view is an observation with the writes of the change worked out.
type view struct {
	Observed
	from, to nodeset.Set
	route    route
}

func look(o Observed) *view {
	v := &view{Observed: o}
	if !o.Change.Spec.AnyNode {
		v.to = nodeset.Of(o.Change.Spec.NodeAffinity)
	}
	switch j := o.Change.Status.Journal; {
	case j != nil:
		v.from = setOf(j.From)
	case o.Volume != nil:
		v.from = nodeset.Of(o.Volume.Spec.NodeAffinity)
	}
	v.route = routeOf(v.from, v.to, o.Nodes, o.Change.Spec.Storage)
	return v
}

// journal is the journal, the zero one before there is one.
func (v *view) journal() change.Journal {
	if j := v.Change.Status.Journal; j != nil {
		return *j
	}
	return change.Journal{}
}

// after is the set that the present stage leads to.
func (v *view) after() nodeset.Set {
	if v.journal().Stage == change.StageBegun {
		if v.route.offline {
			return nobody
		}
		return v.from
	}
	return setOf(v.journal().After)
}

// isBefore and isAfter say that the volume has what the journal says that it
// has before or after the present write.
func (v *view) isBefore() bool {
	j := v.journal()
	if j.Stage == change.StageBegun {
		return v.has(j.From, j.FromLabels)
	}
	return v.has(j.Before, j.BeforeLabels)
}

func (v *view) isAfter() bool {
	j := v.journal()
	return j.Stage != change.StageBegun && v.has(j.After, j.AfterLabels)
}

func (v *view) has(affinity string, labels map[string]string) bool {
	return equality.Semantic.DeepEqual(decode(affinity), v.Volume.Spec.NodeAffinity) && maps.Equal(labels, carried(v.Volume))
}

// needsFence says that the present write takes nodes away.
func (v *view) needsFence() bool {
	j := v.journal()
	return j.Stage != change.StageBegun && fenced(setOf(j.Before), setOf(j.After), v.Nodes)
}

func (v *view) replaced() bool {
	j := v.Change.Status.Journal
	return j != nil && v.Volume != nil && v.Volume.UID != j.VolumeUID
}

func (v *view) aborted() bool {
	return v.Change.Spec.State == change.Aborted || v.Change.DeletionTimestamp != nil
}

func (v *view) approved() bool { return v.Change.Spec.Approved == nil || *v.Change.Spec.Approved }

func (v *view) hasFinalizer() bool {
	return slices.Contains(v.Change.Finalizers, change.Finalizer)
}

func (v *view) time() *metav1.Time { t := metav1.NewTime(v.Now); return &t }

// labels are the zone and region labels to change with a write of a set.
func (v *view) labels(set nodeset.Set) map[string]string {
	if inTree(v.Volume) {
		return nil
	}
	return Labels(v.Volume, set, v.Nodes, v.Change.Spec.ZoneLabels)
}

// begin writes the journal, before anything is written to the volume.
func (v *view) begin() Decision {
	st := v.status()
	st.Journal = &change.Journal{
		VolumeUID: v.Volume.UID, From: encode(v.Volume.Spec.NodeAffinity), FromLabels: carried(v.Volume), Stage: change.StageBegun,
	}
	st.SettledBy = change.SettledByNone
	st.Blockers, st.BlockerCount = nil, 0
	st.Phase = change.PhaseFencing
	v.condition(&st, metav1.ConditionFalse, change.ReasonChanging, "Under way")
	return Decision{Why: WhyBegin, Step: WriteStatus{Status: st}, Event: &Event{
		Type: normal, Reason: change.ReasonChanging,
		Message: fmt.Sprintf("Changing the node affinity of PersistentVolume %q: %s", v.Volume.Name, v.route.kind),
	}}
}

// stage begins the next write: the journal speaks of it first.
func (v *view) stage(why string, s change.Stage) Decision {
	if !v.Live {
		return Decision{NeedLive: true, Why: why}
	}
	return v.note(why, func(j *change.Journal) {
		j.Stage, j.Before, j.BeforeLabels = s, encode(v.Volume.Spec.NodeAffinity), carried(v.Volume)
		j.MarkUID, j.WrittenAt, j.SettledAt = "", nil, nil
		set := v.to
		switch s {
		case change.StageNarrowing:
			set = v.route.first
		case change.StageRestore:
			j.After, j.AfterLabels = j.From, j.FromLabels
			return
		case change.StageTarget, change.StageBegun:
		}
		j.After, j.AfterLabels = encode(set.Affinity()), patched(j.BeforeLabels, v.labels(set))
	})
}

// restore begins the write of what was before.
func (v *view) restore(why string) Decision { return v.stage(why, change.StageRestore) }

// writeVolume is the write that the journal speaks of.
func (v *view) writeVolume() WriteVolume {
	j := v.journal()
	return WriteVolume{
		Volume: v.Volume.Name, UID: v.Volume.UID, ResourceVersion: v.Volume.ResourceVersion,
		Affinity: j.After, Labels: back(carried(v.Volume), j.AfterLabels),
	}
}

// status is a copy of the present status, brought up to date as far as that
// goes by itself.
func (v *view) status() change.Status {
	st := *v.Change.Status.DeepCopy()
	st.ObservedGeneration = v.Change.Generation
	if st.Journal == nil && v.Volume != nil {
		st.Kind = v.route.kind
		st.Plan = v.plan()
	}
	return st
}

// note changes the journal, and the phase with it.
func (v *view) note(why string, edit func(*change.Journal)) Decision {
	st := v.status()
	edit(st.Journal)
	st.Phase = phaseOf(st.Journal)
	st.Blockers, st.BlockerCount = nil, 0
	v.condition(&st, metav1.ConditionFalse, change.ReasonChanging, "Under way: "+why)
	return Decision{Why: why, Step: WriteStatus{Status: st}}
}

func phaseOf(j *change.Journal) change.Phase {
	switch {
	case j.Stage == change.StageRestore || j.StorageFailed != "":
		return change.PhaseRestoring
	case j.Stage != change.StageBegun && j.WrittenAt != nil && j.SettledAt == nil:
		return change.PhaseSettling
	case j.Stage == change.StageNarrowing && j.SettledAt != nil:
		return change.PhaseStorageMoving
	}
	return change.PhaseFencing
}

// wait says what a change waits for, once.
func (v *view) wait(why string, phase change.Phase, reason, message string, out []change.Blocker) Decision {
	st := v.status()
	st.Phase = phase
	st.Blockers, st.BlockerCount = out[:min(len(out), maxBlockers)], int32(min(len(out), 1<<30)) //nolint:gosec // bounded in this very line
	v.condition(&st, metav1.ConditionFalse, reason, message)
	d := Decision{Why: why, RequeueAfter: recheck}
	if equality.Semantic.DeepEqual(st, v.Change.Status) {
		return d
	}
	d.Step = WriteStatus{Status: st}
	if v.reason() != reason {
		d.Event = &Event{Type: eventType(reason), Reason: reason, Message: message}
	}
	return d
}

// end says how a change ended. The mark goes first, so that an ended change
// never leaves one.
func (v *view) end(why string, phase change.Phase, reason, message string) Decision {
	if d, ok := v.releaseMark(why); ok {
		return d
	}
	st := v.status()
	st.Phase, st.CompletedAt, st.Holder = phase, v.time(), ""
	st.Blockers, st.BlockerCount = nil, 0
	status, kind := metav1.ConditionFalse, warning
	if phase == change.PhaseSucceeded {
		status, kind = metav1.ConditionTrue, normal
	}
	v.condition(&st, status, reason, message)
	return Decision{Why: why, Step: WriteStatus{Status: st}, Event: &Event{Type: kind, Reason: reason, Message: message}}
}

func (v *view) reason() string {
	if c := meta.FindStatusCondition(v.Change.Status.Conditions, change.ConditionComplete); c != nil {
		return c.Reason
	}
	return ""
}

func (v *view) condition(st *change.Status, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{
		Type: change.ConditionComplete, Status: status, Reason: reason, Message: message,
		ObservedGeneration: v.Change.Generation, LastTransitionTime: metav1.NewTime(v.Now),
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// eventType is Normal for what passes by itself and Warning for what somebody
// must act on.
func eventType(reason string) string {
	switch reason {
	case change.ReasonSettling, change.ReasonDraining, change.ReasonWaitingForStorage, change.ReasonNotApproved,
		change.ReasonPaused, change.ReasonAnotherChange:
		return normal
	}
	return warning
}

// encode writes an affinity as the journal keeps it; empty for none.
func encode(a *corev1.VolumeNodeAffinity) string {
	if a == nil {
		return ""
	}
	out, err := json.Marshal(a)
	if err != nil {
		return "" // plain structs of strings always marshal
	}
	return string(out)
}

func decode(text string) *corev1.VolumeNodeAffinity {
	if text == "" {
		return nil
	}
	var a corev1.VolumeNodeAffinity
	if json.Unmarshal([]byte(text), &a) != nil {
		return &corev1.VolumeNodeAffinity{} // matches nothing that could be on a volume
	}
	return &a
}

func setOf(text string) nodeset.Set { return nodeset.Of(decode(text)) }
