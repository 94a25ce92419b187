package plantest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Invariants names what is checked, for people who read a test's output.
var Invariants = []string{
	"F1 a claim is bound to no volume but one that exactly one worker or fill of a plugin filled, that was never Released and whose storage stands",
	"F1 no Population claims success of anything else",
	"F1 no worker is made before its prime is Bound",
	"F2 nothing is written to, nor mounted of, somebody's volume, none is destroyed by our deletes, and each is given back as it was",
	"F2 a filled volume is handed over with the policy of its class and, unless a user meddles, is never destroyed",
	"F2 no volume goes while a plugin writes to it, unless somebody removes it by force",
	"F2 no object is touched that is not ours, no Population of a living claim is deleted",
	"F3 at rest nothing temporary is left but the last failed worker",
	"F3 a plugin is told to clean up whatever it began",
	"F3 a claim whose temporaries live elsewhere is held from before the first is made until the last is seen gone, and no longer",
	"F4 from every state, when disturbances stop, the claim is Bound or says why not",
	"F4 no volume is ever written to twice",
	"F5 no worker is made of a source of another namespace that is not granted",
	"F4 no claim is begun out of its turn",
	"F4 also when all clocks are set, back or forth",
	"F6 a worker is root where only root may write to its volume, and nowhere else",
	"F7 attempts are capped, spaced by back-off, and no decision repeats without end",
	"F8 a Pod that can never reach its volume is told of",
	"F8 at rest after success the planner has nothing to do, to say or to wait for",
}

// check returns the first invariant that a state breaks.
func (s *state) check() string {
	if s.violation != "" {
		return s.violation
	}
	for _, d := range s.vols {
		switch {
		case d.foreign && len(d.writers) > 0:
			return fmt.Sprintf("F2: %v write to somebody's volume %q", d.writers, d.pv.Name)
		case len(d.writers) > 1:
			return fmt.Sprintf("F4: volume %q is written to by %v", d.pv.Name, d.writers)
		case d.filled && d.destroyed && !s.meddled && s.claim() != nil && s.claim().Spec.VolumeName == "":
			return fmt.Sprintf("F2: filled volume %q is destroyed", d.pv.Name)
		}
	}
	for _, p := range s.pods {
		if c := s.pvc(p.Namespace, claimNamed(p)); p.Spec.NodeName != "" && c != nil && mounts(p, ofClaim) {
			if d := s.disk(c.Spec.VolumeName); d != nil && d.foreign {
				return fmt.Sprintf("F2: Pod %q mounts somebody's volume %q", p.Name, d.pv.Name)
			}
		}
	}
	if why := s.checkFills(); why != "" {
		return why
	}
	c := s.claim()
	if c == nil {
		return ""
	}
	var d *disk
	if c.Spec.VolumeName != "" {
		d = s.disk(c.Spec.VolumeName)
	}
	if d != nil && !d.foreign {
		if !d.filled || len(d.writers) != 1 || d.released || d.destroyed {
			return fmt.Sprintf("F1: claim is bound to volume %q, filled %t by %v, released %t, destroyed %t",
				d.pv.Name, d.filled, d.writers, d.released, d.destroyed)
		}
	}
	if p := s.pop; p != nil && p.Spec.ClaimUID == c.UID && p.Status.Phase == v1alpha1.PhaseSucceeded && !s.meddled {
		if d == nil || d.foreign {
			return "F1: the Population claims success and the claim is not bound to a volume of ours"
		}
	}
	if s.sc.NameTaken && (s.pvcByUID("somebodys") == nil || s.pvcByUID("somebodys").DeletionTimestamp != nil || s.pod(namespace, populate.TemporaryName("claim-1", 1)) == nil) {
		return "F2: somebody's object under the name of a temporary is gone"
	}
	return ""
}

// allocated checks an allocation against the back-off and the cap.
func (s *state) allocated() {
	r, fresh := s.pop.Status.Result, s.newSource
	s.newSource = false
	if r == nil || r.Succeeded || fresh || r.SourceGeneration != s.sourceGen || r.EndedAt == nil {
		return
	}
	if !s.clockSet && s.now.Sub(r.EndedAt.Time) < time.Second {
		s.breach("F7: attempt %d follows the failed one without back-off", s.pop.Spec.Attempt)
	}
	if r.Failures >= maxAttempts {
		s.breach("F7: another attempt after %d failures", r.Failures)
	}
}

// unrest says why a state in which nothing happens any more is not one to rest
// in; empty when it is.
func (s *state) unrest() string {
	keeps := s.pop != nil && s.pop.Status.Phase == v1alpha1.PhaseFailed
	workers := 0
	for _, p := range s.pods {
		if p.Labels[v1alpha1.LabelRole] == "" {
			continue
		}
		if workers++; !keeps || workers > 1 || isScout(p) {
			return "F3: worker " + p.Name + " is left"
		}
	}
	for _, p := range s.pvcs {
		if p.Labels[v1alpha1.LabelRole] != "" && (workers == 0 || p.DeletionTimestamp == nil) {
			return "F3: prime " + p.Name + " is left"
		}
	}
	if why := s.fillUnrest(); why != "" {
		return why
	}
	c := s.claim()
	for _, d := range s.vols {
		if why := s.volumeUnrest(d, c, workers); why != "" {
			return why
		}
	}
	if c == nil {
		if s.pop != nil {
			return "F3: the Population is left"
		}
		return ""
	}
	if held(c) && workers == 0 {
		return "F3: the claim is held and nothing of it is left"
	}
	return s.claimUnrest(c)
}

func (s *state) volumeUnrest(d *disk, c *corev1.PersistentVolumeClaim, workers int) string {
	pv := d.pv
	switch {
	case d.foreign:
		if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase == corev1.VolumeReleased && !strings.HasPrefix(ref.Name, "sluice-") {
			return "" // another claim had it and is gone; to restore the policy now would destroy it
		}
		if pv.Labels[v1alpha1.LabelRole] != "" || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			return fmt.Sprintf("F2: somebody's volume %q is not as it was", pv.Name)
		}
	case c != nil && c.Spec.VolumeName == pv.Name:
	case c != nil && pv.DeletionTimestamp != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == c.UID:
		// A user deleted the volume between hand-over and bind: Kubernetes lets it
		// go when the claim is bound to another, or gone.
	case workers > 0 && pv.Status.Phase == corev1.VolumeBound:
	case pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain &&
		(pv.Labels[v1alpha1.LabelPartial] != "" || pv.Labels[v1alpha1.LabelRole] == populate.RoleFilled):
	default:
		return fmt.Sprintf("F3: volume %q is left, %s", pv.Name, pv.Status.Phase)
	}
	return ""
}

func (s *state) claimUnrest(c *corev1.PersistentVolumeClaim) string {
	p := s.pop
	if c.Spec.VolumeName == "" {
		switch {
		case p == nil:
			return "F4: the claim waits and nothing says why"
		case p.Status.Phase == v1alpha1.PhaseFailed && ready(p.Status.Conditions) != "":
			return ""
		}
		return fmt.Sprintf("F4: the claim waits in phase %s, %s", p.Status.Phase, ready(p.Status.Conditions))
	}
	d := s.disk(c.Spec.VolumeName)
	foreign := d == nil || d.foreign
	switch {
	case p == nil: // Kubernetes bound the claim before anything began, or a user deleted the record
		return ""
	case foreign && p.Status.Phase == v1alpha1.PhaseFailed, foreign && s.meddled:
		return ""
	case !foreign && p.Status.Phase == v1alpha1.PhaseSucceeded:
		return s.silence(d)
	}
	return fmt.Sprintf("F4: the claim is bound to %q and its Population says %s", c.Spec.VolumeName, p.Status.Phase)
}
