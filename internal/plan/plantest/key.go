package plantest

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

var seed = maphash.MakeSeed()

// key identifies a state up to what makes no difference: resourceVersions but
// for whether a late step's still matches, times but for their distance from
// now, messages, and the numbers in UIDs but for which object they mean.
func (s *state) key(budget bool) uint64 {
	k := keyer{b: make([]byte, 0, 1024), now: s.now}
	k.pvcs(s.pvcs)
	k.pods(s.pods)
	k.pop(s.pop)
	k.disks(s.vols)
	for _, f := range s.inflight {
		k.text("inflight", f.name)
		k.uid(string(f.claim))
	}
	k.plugin(s)
	k.text(s.refused.Reason, s.refused.Step)
	k.num(int(s.sourceGen))
	k.is(s.remadeSource)
	k.is(s.newSource)
	k.is(s.moved)
	k.is(s.revoked)
	k.is(s.wasRevoked)
	k.is(s.clockSet)
	k.is(s.allowsRoot)
	k.is(s.crowded)
	k.is(s.pushed)
	k.is(s.warned)
	if s.refused.Reason != "" {
		k.age(s.refused.At)
	}
	if f := s.frozen; f != nil {
		k.text("frozen", f.kind)
		switch f.kind {
		case "claim", "prime":
			k.pvcs(f.pvcs)
		case "worker":
			k.pods(f.pods)
		case "population":
			k.pop(f.pop)
		case "volume":
			k.disks(f.vols)
		}
	}
	if s.late != nil {
		k.text("late", stepName(s.late))
		k.is(s.lateEvent != nil)
		k.uid(string(s.lateFor))
		s.fits(s.late, &k)
	}
	k.is(s.remade)
	k.is(s.forced)
	if budget {
		k.num(s.left)
		k.is(s.slow)
		k.is(s.deleted)
	}
	return maphash.Bytes(seed, k.b)
}

// fits tells apart what a late step will do: whether its preconditions hold.
func (s *state) fits(step populate.Step, k *keyer) {
	uid, rv := "", ""
	switch t := step.(type) {
	case populate.Allocate:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.WriteStatus:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.CreateWorker:
		uid, rv = string(t.Record.UID), t.Record.ResourceVersion
		k.uid(t.Worker.Annotations[populate.AnnotationPrimeUID])
	case populate.CreateScout:
		uid = t.Scout.Annotations[v1alpha1.AnnotationNonce]
	case populate.CreatePrime:
		k.text(t.Prime.Namespace)
		uid = t.Prime.Annotations[v1alpha1.AnnotationNonce]
	case populate.StartFill:
		uid, rv = string(t.Record.UID), t.Record.ResourceVersion
		k.uid(t.Start.ID)
	case populate.CallPlugin:
		uid = t.ID
	case populate.ReleasePrime:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.DeletePopulation:
		uid = string(t.UID)
	case populate.DeletePrime:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.DeleteWorker:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.Rebind:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.SetReclaimPolicy:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.LabelVolume:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.ReleaseForeign:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.UnselectNode:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.SetFinalizer:
		uid, rv = string(t.UID), t.ResourceVersion
	case populate.CreatePopulation:
	}
	k.uid(uid)
	k.is(rv != "" && s.current(uid, rv))
}

// current says that the object of a UID still has a resourceVersion.
func (s *state) current(uid, rv string) bool {
	is := func(o metav1.Object) bool { return string(o.GetUID()) == uid && o.GetResourceVersion() == rv }
	return slices.ContainsFunc(s.pvcs, func(p *corev1.PersistentVolumeClaim) bool { return is(p) }) ||
		slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool { return is(p) }) ||
		slices.ContainsFunc(s.vols, func(d *disk) bool { return is(d.pv) }) ||
		(s.pop != nil && is(s.pop))
}

// keyer writes a state down.
type keyer struct {
	b    []byte
	now  time.Time
	uids []string
}

func (k *keyer) text(parts ...string) {
	for _, p := range parts {
		k.b = append(append(k.b, p...), ' ')
	}
}

func (k *keyer) num(n int) { k.b = append(strconv.AppendInt(k.b, int64(n), 36), ' ') }

func (k *keyer) is(b bool) { k.b = append(strconv.AppendBool(k.b, b), ' ') }

// uid numbers UIDs in the order in which a state mentions them.
func (k *keyer) uid(uid string) {
	if uid == "" {
		k.num(0)
		return
	}
	n := slices.Index(k.uids, uid)
	if n < 0 {
		n = len(k.uids)
		k.uids = append(k.uids, uid)
	}
	k.num(n + 1)
}

// age is how long ago something was, as far as anybody looks.
func (k *keyer) age(t time.Time) { k.upTo(t, 20*time.Minute) }

// phaseAge is the age of something that matters for a few seconds only.
func (k *keyer) phaseAge(t time.Time) { k.upTo(t, 3*time.Second) }

func (k *keyer) upTo(t time.Time, limit time.Duration) {
	k.num(int(max(-limit, min(k.now.Sub(t), limit)) / time.Second))
}

func (k *keyer) meta(o metav1.Object) {
	owner := ""
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		owner = string(ref.UID)
	}
	if _, isPV := o.(*corev1.PersistentVolume); !isPV {
		k.text(o.GetNamespace(), o.GetName())
	}
	k.uid(string(o.GetUID()))
	k.uid(owner)
	if t := o.GetDeletionTimestamp(); t != nil {
		k.text("deleting")
		k.upTo(t.Time, time.Minute)
	}
	l := o.GetLabels()
	k.text(l[v1alpha1.LabelAttempt])
	k.uid(l[v1alpha1.LabelClaimUID])
	k.uid(o.GetAnnotations()[v1alpha1.AnnotationNonce])
}

func (k *keyer) pvcs(list []*corev1.PersistentVolumeClaim) {
	for _, p := range sorted(list) {
		k.meta(p)
		k.uid(p.Spec.VolumeName)
		k.is(held(p))
		k.text(string(p.Status.Phase), p.Annotations[selectedNode], p.Annotations[bindCompleted])
		k.is(awaitsPlugin(p))
		k.phaseAge(p.CreationTimestamp.Time)
	}
}

func (k *keyer) pods(list []*corev1.Pod) {
	for _, p := range sorted(list) {
		k.meta(p)
		k.text(p.Spec.NodeName, string(p.Status.Phase), disruption(p))
		k.uid(p.Annotations[populate.AnnotationPrimeUID])
		k.phaseAge(p.CreationTimestamp.Time)
		st := containerState(p)
		switch {
		case st.Running != nil:
			k.text("running")
			k.phaseAge(st.Running.StartedAt.Time)
		case st.Terminated != nil:
			k.text("ended")
			k.num(int(st.Terminated.ExitCode))
			k.phaseAge(st.Terminated.FinishedAt.Time)
		}
	}
}

func (k *keyer) pop(p *v1alpha1.Population) {
	if p == nil {
		k.text("none")
		return
	}
	k.meta(p)
	k.uid(string(p.Spec.ClaimUID))
	k.num(int(p.Spec.Attempt))
	k.text(p.Spec.Namespace)
	k.uid(p.Spec.Nonce)
	k.text(string(p.Status.Phase), ready(p.Status.Conditions), p.Status.NodeName)
	k.uid(p.Status.VolumeName)
	if src := p.Status.Source; src != nil {
		k.text("source", string(src.UID))
	}
	if t := p.Status.Prime; t != nil {
		k.text("prime", t.Name)
		k.uid(string(t.UID))
	}
	if f := p.Status.Fill; f != nil {
		k.text("fill")
		k.uid(string(f.ID))
		k.phaseAge(f.StartedAt.Time)
	}
	if r := p.Status.Result; r != nil {
		k.text("result", r.Reason)
		k.num(int(r.Attempt))
		k.is(r.Succeeded)
		k.is(r.Permanent)
		k.num(int(r.Failures))
		k.num(int(r.SourceGeneration))
		k.num(int(r.PopulatorGeneration))
		if r.EndedAt != nil && !r.Succeeded {
			k.age(r.EndedAt.Time)
		}
	}
}

// plugin writes down the plugin's memory and what the manager knows of it.
func (k *keyer) plugin(s *state) {
	for _, f := range s.fills {
		k.text("fill")
		k.uid(f.id)
		k.uid(f.volume)
		k.num(int(f.state))
		k.is(f.cleaned)
	}
	for _, c := range s.calls {
		k.text("call", string(c.Call))
		k.uid(c.ID)
		k.is(c.HandedOver)
	}
	for _, r := range s.replies {
		k.text("reply", string(r.Call), r.Reason)
		k.uid(string(r.claim))
		k.uid(r.ID)
		k.is(r.Pending)
		k.is(r.Unknown)
		k.is(r.Doubtful)
		k.is(r.Failure != nil)
		k.is(r.Done)
		k.num(int(r.State))
		k.upTo(r.At, r.RetryAfter)
	}
}

func refName(d *disk) string {
	if d.pv.Spec.ClaimRef == nil {
		return ""
	}
	return d.pv.Spec.ClaimRef.Name
}

func (k *keyer) disks(list []*disk) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *disk) int {
		if c := strings.Compare(refName(a), refName(b)); c != 0 {
			return c
		}
		return strings.Compare(a.pv.Name, b.pv.Name)
	})
	for _, d := range list {
		k.meta(d.pv)
		k.uid(d.pv.Name)
		k.text(refName(d), string(d.pv.Status.Phase), string(d.pv.Spec.PersistentVolumeReclaimPolicy), d.pv.Annotations[boundByController],
			d.pv.Labels[v1alpha1.LabelRole], d.pv.Labels[populate.LabelReclaimPolicy], d.pv.Labels[v1alpha1.LabelPartial])
		if ref := d.pv.Spec.ClaimRef; ref != nil {
			k.uid(string(ref.UID))
		}
		k.is(d.filled)
		k.is(d.released)
		k.is(d.destroyed)
		for _, w := range d.writers {
			k.uid(string(w))
		}
	}
}

func sorted[T metav1.Object](list []T) []T {
	if len(list) < 2 {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int {
		if c := strings.Compare(a.GetName(), b.GetName()); c != 0 {
			return c
		}
		return strings.Compare(string(a.GetUID()), string(b.GetUID()))
	})
	return list
}
