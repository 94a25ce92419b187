package plantest

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// apply carries out one step as the API server would, and says whether it did
// anything. A step that is late was decided on another state.
func (s *state) apply(step populate.Step, uid types.UID, late bool) bool {
	switch t := step.(type) {
	case populate.CreatePopulation:
		return s.createPopulation(t, late)
	case populate.DeletePopulation:
		if s.pop == nil || (t.UID != "" && s.pop.UID != t.UID) {
			return false
		}
		if s.pop.Spec.ClaimUID == uid && s.pvcByUID(uid) != nil && metaOwner(s.pop) == uid {
			s.breach("F2: the Population of a living claim is deleted")
		}
		s.pop = nil
		return true
	case populate.Allocate:
		if !s.popIs(t.UID, t.ResourceVersion) || t.To <= s.pop.Spec.Attempt {
			return false
		}
		s.allocated()
		if !late {
			s.begun(t.To)
		}
		s.editPop(func(p *v1alpha1.Population) { p.Spec.Attempt, p.Spec.Namespace = t.To, t.Temporaries })
		return true
	case populate.WriteStatus:
		return s.writeStatus(t)
	case populate.CreatePrime:
		return s.createPrime(t, late)
	case populate.CreateScout:
		return s.createPod(t.Scout, "scout")
	case populate.CreateWorker:
		if !s.writeStatus(t.Record) {
			return false
		}
		return s.createWorker(t, late)
	case populate.StartFill:
		return s.startFill(t, late)
	case populate.CallPlugin:
		return s.callPlugin(t, late)
	case populate.ReleasePrime:
		return s.releasePrime(t)
	case populate.DeletePrime:
		return s.deletePrime(t)
	case populate.DeleteWorker:
		return s.deleteWorker(t)
	case populate.Rebind:
		return s.rebind(t)
	case populate.SetReclaimPolicy:
		return s.editVolume(t.Volume, t.UID, t.ResourceVersion, t.Labels, func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = t.Policy
		})
	case populate.LabelVolume:
		return s.editVolume(t.Volume, t.UID, t.ResourceVersion, t.Labels, nil)
	case populate.ReleaseForeign:
		return s.editVolume(t.Volume, t.UID, t.ResourceVersion, nil, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })
	case populate.UnselectNode:
		c := s.claim()
		if c == nil || c.UID != t.UID || c.ResourceVersion != t.ResourceVersion {
			return false
		}
		s.editPVC(c, func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, selectedNode) })
		return true
	case populate.SetFinalizer:
		return s.setFinalizer(t)
	}
	s.breach("unknown step %T", step)
	return false
}

func (s *state) startFill(t populate.StartFill, late bool) bool {
	return s.writeStatus(t.Record) && s.callPlugin(t.Start, late)
}

// callPlugin calls a plugin. The answer to a manager that is no more goes
// nowhere.
func (s *state) callPlugin(t populate.CallPlugin, late bool) bool {
	if late {
		s.serve(t)
		return true
	}
	return s.call(t)
}

func (s *state) releasePrime(t populate.ReleasePrime) bool {
	p := s.pvc(t.Namespace, t.Name)
	if p == nil || p.UID != t.UID || p.ResourceVersion != t.ResourceVersion {
		return false
	}
	s.editPVC(p, func(p *corev1.PersistentVolumeClaim) { p.Finalizers = t.Finalizers })
	return true
}

func (s *state) deletePrime(t populate.DeletePrime) bool {
	p := s.pvc(t.Namespace, t.Name)
	if p == nil || (t.UID != "" && p.UID != t.UID) || (t.ResourceVersion != "" && p.ResourceVersion != t.ResourceVersion) {
		return false
	}
	return s.managerDeletesPrime(p)
}

func (s *state) deleteWorker(t populate.DeleteWorker) bool {
	p := s.pod(t.Namespace, t.Name)
	if p == nil || (t.UID != "" && p.UID != t.UID) || (t.ResourceVersion != "" && p.ResourceVersion != t.ResourceVersion) {
		return false
	}
	if role := p.Labels[v1alpha1.LabelRole]; role != v1alpha1.RoleWorker && role != v1alpha1.RoleScout {
		s.breach("F2: Pod %q, which is not ours, is deleted", p.Name)
	}
	s.deletePod(p)
	return true
}

func metaOwner(p *v1alpha1.Population) types.UID {
	if len(p.OwnerReferences) == 0 {
		return ""
	}
	return p.OwnerReferences[0].UID
}

func (s *state) createPopulation(t populate.CreatePopulation, late bool) bool {
	if s.pop != nil {
		return false
	}
	if !late {
		s.begun(t.Population.Spec.Attempt)
	}
	p := t.Population.DeepCopy()
	p.UID, p.ResourceVersion, p.CreationTimestamp = s.newUID("pop"), s.nextRV(), s.stamp()
	p.Generation, p.Status = 1, v1alpha1.PopulationStatus{}
	if p.Spec.Nonce == "" {
		p.Spec.Nonce = fmt.Sprintf("nonce-%s", p.UID)
	}
	s.pop = p
	return true
}

func (s *state) popIs(uid types.UID, rv string) bool {
	return s.pop != nil && (uid == "" || s.pop.UID == uid) && (rv == "" || s.pop.ResourceVersion == rv)
}

func (s *state) writeStatus(t populate.WriteStatus) bool {
	if !s.popIs(t.UID, t.ResourceVersion) {
		return false
	}
	s.editPop(func(p *v1alpha1.Population) { p.Status = *t.Status.DeepCopy() })
	return true
}

// setFinalizer puts our finalizer on the claim, or lets the claim go. The API
// server adds none to what is being deleted.
func (s *state) setFinalizer(t populate.SetFinalizer) bool {
	c := s.claim()
	if c == nil || c.UID != t.UID || c.ResourceVersion != t.ResourceVersion || held(c) == t.Present || (t.Present && c.DeletionTimestamp != nil) {
		return false
	}
	if !t.Present {
		s.stillThere(c.UID)
	}
	s.editPVC(c, func(c *corev1.PersistentVolumeClaim) {
		c.Finalizers = nil
		if t.Present {
			c.Finalizers = []string{v1alpha1.FinalizerPopulation}
		}
	})
	return true
}

// stillThere checks that nothing of a claim that is let go is left but what has
// been going for long.
func (s *state) stillThere(claim types.UID) {
	check := func(o metav1.Object) {
		going := o.GetDeletionTimestamp()
		if o.GetLabels()[v1alpha1.LabelClaimUID] == string(claim) && (going == nil || s.now.Sub(going.Time) < time.Minute) {
			s.breach("F3: the claim is let go while %s/%s stands", o.GetNamespace(), o.GetName())
		}
	}
	for _, p := range s.pvcs {
		check(p)
	}
	for _, p := range s.pods {
		check(p)
	}
}

func (s *state) createPrime(t populate.CreatePrime, late bool) bool {
	if s.pvc(t.Prime.Namespace, t.Prime.Name) != nil {
		return false
	}
	if c := s.claim(); t.Prime.Namespace != namespace && !late && (c == nil || !held(c)) {
		s.breach("F3: prime %s/%s is made while nothing holds its claim", t.Prime.Namespace, t.Prime.Name)
	}
	p := t.Prime.DeepCopy()
	p.UID = s.newUID("prime")
	p.Status.Phase = corev1.ClaimPending
	s.addPVC(p)
	return true
}

func (s *state) createWorker(t populate.CreateWorker, late bool) bool {
	prime := s.pvc(t.Worker.Namespace, t.Worker.Name)
	made := s.pod(t.Worker.Namespace, t.Worker.Name) != nil
	if !made && !late {
		s.checkRoot(t.Worker)
	}
	if !made && s.revoked && !late {
		s.breach("F5: worker %q is made of a source that is not granted", t.Worker.Name)
	}
	if !made && !late && s.frozen == nil && (prime == nil || prime.Status.Phase != corev1.ClaimBound) {
		s.breach("F1: worker %q is created before its prime is Bound", t.Worker.Name)
	}
	return s.createPod(t.Worker, "worker")
}

func (s *state) createPod(pod *corev1.Pod, what string) bool {
	if s.pod(pod.Namespace, pod.Name) != nil {
		return false
	}
	p := pod.DeepCopy()
	p.UID = s.newUID(what)
	p.Status.Phase = corev1.PodPending
	s.addPod(p)
	return true
}

func (s *state) managerDeletesPrime(p *corev1.PersistentVolumeClaim) bool {
	if p.Labels[v1alpha1.LabelRole] != v1alpha1.RolePrime {
		s.breach("F2: claim %q, which is not ours, is deleted", p.Name)
	}
	for _, d := range s.vols {
		if d.foreign && d.pv.Spec.ClaimRef != nil && d.pv.Spec.ClaimRef.UID == p.UID &&
			d.pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			s.breach("F2: prime %q is deleted while somebody's volume %q would go with it", p.Name, d.pv.Name)
		}
	}
	s.deletePVC(p)
	return true
}

func (s *state) rebind(t populate.Rebind) bool {
	d := s.disk(t.Volume)
	if d == nil || (t.UID != "" && d.pv.UID != t.UID) || (t.ResourceVersion != "" && d.pv.ResourceVersion != t.ResourceVersion) {
		return false
	}
	if t.ClaimRef.UID == "" {
		s.breach("F1: volume %q is handed to a claim without its UID", t.Volume)
	}
	switch {
	case !d.filled || len(d.writers) != 1:
		s.breach("F1: volume %q is handed over, filled %t by writers %v", t.Volume, d.filled, d.writers)
	case d.released:
		s.breach("F1: volume %q was Released and is handed over", t.Volume)
	case d.pv.Spec.PersistentVolumeReclaimPolicy != s.sc.policy():
		s.breach("F2: volume %q is handed over with policy %s", t.Volume, d.pv.Spec.PersistentVolumeReclaimPolicy)
	}
	ref := t.ClaimRef
	return s.editVolume(t.Volume, t.UID, t.ResourceVersion, t.Labels, func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &ref
		if len(t.AccessModes) > 0 {
			pv.Spec.AccessModes = t.AccessModes
		}
	})
}

func (s *state) editVolume(name string, uid types.UID, rv string, labels map[string]string, change func(*corev1.PersistentVolume)) bool {
	d := s.disk(name)
	if d == nil || (uid != "" && d.pv.UID != uid) || (rv != "" && d.pv.ResourceVersion != rv) {
		return false
	}
	s.editPV(d, func(pv *corev1.PersistentVolume) {
		for k, v := range labels {
			if v == "" {
				delete(pv.Labels, k)
				continue
			}
			if pv.Labels == nil {
				pv.Labels = map[string]string{}
			}
			pv.Labels[k] = v
		}
		if change != nil {
			change(pv)
		}
	})
	return true
}

// halves are the states that a step leaves when it is applied in part only.
func halves(step populate.Step) (populate.Step, bool) {
	switch t := step.(type) {
	case populate.CreateWorker:
		return t.Record, true
	case populate.StartFill:
		return t.Record, true
	default:
		return nil, false
	}
}

// carryOut applies a step for the manager that decided it. What was refused
// before is forgotten when a write other than of the status is accepted.
func (s *state) carryOut(d populate.Decision, uid types.UID) {
	applied := s.apply(d.Step, uid, false)
	if applied {
		s.hear(d.Event)
	}
	switch d.Step.(type) {
	case populate.WriteStatus, populate.CallPlugin:
	default:
		if applied {
			s.refused = populate.Refusal{}
		}
	}
}

// refuse lets the API server refuse a step, after the part of it that is a
// write of its own.
func (s *state) refuse(step populate.Step, uid types.UID) {
	if half, ok := halves(step); ok {
		if _, fill := step.(populate.StartFill); !fill && !s.apply(half, uid, false) {
			return
		}
	}
	s.refused = populate.Refusal{
		Reason: v1alpha1.ReasonQuotaExceeded, Message: "exceeded quota", At: s.now, Step: populate.Kind(step),
	}
}

// freeze stops the cache of one kind.
func (s *state) freeze(kind string) {
	s.frozen = &frozen{kind: kind, pvcs: slices.Clone(s.pvcs), pods: slices.Clone(s.pods), pop: s.pop, vols: slices.Clone(s.vols)}
}

// sourceUID is the UID of the source as it stands.
func (s *state) sourceUID() types.UID {
	if s.remadeSource {
		return "source-2"
	}
	return "source"
}
