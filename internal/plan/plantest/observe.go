package plantest

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// claimOf is the claim UID in the name of a temporary.
func claimOf(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "sluice-")
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return "", false
	}
	if _, err := strconv.Atoi(rest[i+1:]); err != nil {
		return "", false
	}
	return rest[:i], true
}

// world is what a manager reads: the state itself, or the state with one cache
// that stands still.
type world struct {
	pvcs []*corev1.PersistentVolumeClaim
	pods []*corev1.Pod
	pop  *v1alpha1.Population
	vols []*disk
}

func (s *state) world(live bool) world {
	w := world{pvcs: s.pvcs, pods: s.pods, pop: s.pop, vols: s.vols}
	if live || s.frozen == nil {
		return w
	}
	switch s.frozen.kind {
	case "claim":
		w.pvcs = mix(s.frozen.pvcs, s.pvcs, func(p *corev1.PersistentVolumeClaim) bool { return !isPrime(p) })
	case "prime":
		w.pvcs = mix(s.frozen.pvcs, s.pvcs, isPrime)
	case "worker":
		w.pods = s.frozen.pods
	case "population":
		w.pop = s.frozen.pop
	case "volume":
		w.vols = s.frozen.vols
	}
	return w
}

// mix takes from old what is stale and the rest from fresh.
func mix[T any](old, fresh []T, stale func(T) bool) []T {
	var out []T
	for _, x := range old {
		if stale(x) {
			out = append(out, x)
		}
	}
	for _, x := range fresh {
		if !stale(x) {
			out = append(out, x)
		}
	}
	return out
}

func (s *state) observe(uid types.UID, live, rendered bool, class *storagev1.StorageClass) populate.Observed {
	w := s.world(live)
	o := populate.Observed{
		Now: s.now, Live: live, Namespace: namespace, Name: claimName, ClaimUID: uid,
		System: system, Answers: s.answersFor(uid), Population: w.pop, Populator: s.populator(), Class: class,
		Source:  populate.Source{State: populate.SourceFound, Namespace: s.sc.sourceNamespace(), UID: s.sourceUID(), Generation: s.sourceGen},
		Refused: s.refused, Driver: s.sc.Driver(), Consumers: s.sc.farAway(),
	}
	switch {
	case s.sourceGen == 0:
		o.Source = populate.Source{State: populate.SourceNotFound, Namespace: s.sc.sourceNamespace()}
	case s.revoked:
		o.Source = populate.Source{Namespace: s.sc.sourceNamespace()} // not even looked for
	default:
		o.Source.Granted = true
	}
	primes := map[types.UID]bool{}
	volumes := map[string]bool{}
	for _, p := range w.pvcs {
		of, _ := claimOf(p.Name)
		switch {
		case !isPrime(p):
			o.Claim = p
			if p.UID == uid && p.Spec.VolumeName != "" {
				volumes[p.Spec.VolumeName] = true
			}
		case p.Labels[v1alpha1.LabelClaimUID] == string(uid) || of == string(uid):
			o.Primes = append(o.Primes, *p)
			primes[p.UID] = true
			if p.Spec.VolumeName != "" {
				volumes[p.Spec.VolumeName] = true
			}
		}
	}
	for _, p := range w.pods {
		if of, _ := claimOf(p.Name); p.Labels[v1alpha1.LabelClaimUID] == string(uid) || of == string(uid) {
			o.Workers = append(o.Workers, *p)
		}
	}
	for _, d := range w.vols {
		ref := d.pv.Spec.ClaimRef
		mine := volumes[d.pv.Name] || d.pv.Labels[v1alpha1.LabelClaimUID] == string(uid)
		if ref != nil {
			of, _ := claimOf(ref.Name)
			mine = mine || ref.UID == uid || primes[ref.UID] || of == string(uid)
		}
		if mine {
			o.Volumes = append(o.Volumes, *d.pv)
		}
	}
	if s.sc.Plugin && (o.Claim == nil || o.Claim.UID != uid || o.Claim.DeletionTimestamp != nil) {
		o.Populator = nil // what is not needed is not looked for
	}
	if rendered {
		attempt := int32(0)
		if w.pop != nil {
			attempt = w.pop.Spec.Attempt
		}
		o.Rendered = &populate.Rendered{Attempt: attempt, Pod: WorkerPod()}
	}
	return o
}

// decide lets the planner have what it needs and returns what it decides.
func (e *Explorer) decide(s *state, uid types.UID) populate.Decision {
	live, rendered := false, false
	var slot *slots.Verdict
	for range 8 {
		o := s.observe(uid, live, rendered, e.class)
		o.Slot = slot
		d := e.Planner(o)
		e.decisions++
		if d.Need == 0 {
			return d
		}
		if d.Step != nil {
			s.breach("Need and Step are exclusive, got both by %q", d.Why)
		}
		before := [3]bool{live, rendered, slot != nil}
		live = live || d.Need&populate.NeedLive != 0
		rendered = rendered || d.Need&populate.NeedRender != 0
		if d.Need&populate.NeedSlot != 0 {
			slot = s.verdict()
		}
		if before == [3]bool{live, rendered, slot != nil} {
			s.breach("planner asks twice for the same depth, %q", d.Why)
			return populate.Decision{}
		}
	}
	return populate.Decision{}
}
