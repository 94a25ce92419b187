package populate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// terminatingPatience is how long something of an ended attempt may take to
// vanish before the next attempt goes on beside it. A worker on a dead node
// would otherwise hold up its claim for ever.
const terminatingPatience = time.Minute

// gone is the rule of a claim that is no more, is being deleted, or whose name
// another claim bears now. Nothing else is looked at: a claim can be deleted
// whatever became of its source, class or populator.
func gone(v *view) (Decision, bool) {
	if v.claim != nil {
		return Decision{}, false
	}
	if !v.Live && (v.leftovers() || v.prime != nil || v.worker != nil || v.scout != nil) {
		// Temporaries are seen by another watch than the claim: one may be ahead.
		return Decision{Need: NeedLive, Why: WhyGone}, true
	}
	if d, ok := v.sweep(WhyGone, v.primes(), v.workers()); ok {
		return d, true
	}
	if d, ok := giveBack(v); ok {
		return d, true
	}
	if d, ok := v.markPartial(); ok {
		return d, true
	}
	if d, ok := v.letGo(); ok {
		return d, true
	}
	if p := v.Population; p != nil && p.Spec.ClaimUID == v.ClaimUID && p.DeletionTimestamp == nil && !hasOwner(p, v.ClaimUID) && v.claimGone() {
		// Its owner was stripped, so the garbage collector will not have it.
		if !v.Live {
			return Decision{Need: NeedLive, Why: WhyGone}, true
		}
		return Decision{Why: WhyGone, Step: DeletePopulation{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}, true
	}
	if slices.ContainsFunc(v.Volumes, v.owed) {
		// No claim is left to be woken when it can be given back.
		return Decision{RequeueAfter: recheck, Why: WhyGone}, true
	}
	return Decision{Why: WhyGone}, true
}

// claimGone says that the claim is no more, not merely being deleted.
func (v *view) claimGone() bool { return v.Claim == nil || v.Claim.UID != v.ClaimUID }

// settled is the rule of a claim whose Population says Succeeded: whatever is
// left of its temporaries goes, and then nothing is done or said again.
func settled(v *view) (Decision, bool) {
	if !v.succeeded() {
		return Decision{}, false
	}
	for _, rule := range []func(*view) (Decision, bool){
		func(v *view) (Decision, bool) { return v.sweep(WhySettled, v.primes(), v.workers()) },
		giveBack, (*view).markPartial, (*view).letGo,
	} {
		if d, ok := rule(v); ok {
			return d, true
		}
	}
	return Decision{Why: WhySettled}, true
}

func (v *view) succeeded() bool {
	return v.pop != nil && v.pop.Status.Phase == v1alpha1.PhaseSucceeded
}

// impostor is the rule of a Population that is of another claim UID or not of
// our making: it goes, and until it is gone the claim waits.
func impostor(v *view) (Decision, bool) {
	p := v.Population
	if p == nil || v.pop != nil {
		return Decision{}, false
	}
	if v.claim.Spec.VolumeName != "" && !v.leftovers() {
		return Decision{Why: WhyNotAsked}, true // the claim needs no record
	}
	if p.DeletionTimestamp != nil {
		return Decision{RequeueAfter: recheck, Why: WhyPopulationGoing}, true
	}
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyImpostor}, true
	}
	return Decision{Why: WhyImpostor, Step: DeletePopulation{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}, true
}

// leftBehind deletes temporaries that belong to no running attempt, and marks
// what they left.
func leftBehind(v *view) (Decision, bool) {
	if d, ok := v.sweep(WhyLeftBehind, v.otherPrimes, v.otherWorkers); ok {
		return d, true
	}
	return v.markPartial()
}

// markPartial labels a volume that a prime of this claim left behind.
func (v *view) markPartial() (Decision, bool) {
	pv := v.partial()
	switch {
	case pv == nil:
		return Decision{}, false
	case !v.Live:
		return Decision{Need: NeedLive, Why: WhyPartial}, true
	}
	return Decision{Why: WhyPartial, Step: LabelVolume{
		Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
		Labels: map[string]string{v1alpha1.LabelPartial: "true"},
	}}, true
}

func (v *view) leftovers() bool { return len(v.otherPrimes)+len(v.otherWorkers) > 0 }

// primes and workers are all temporaries that are ours to delete.
func (v *view) primes() []*corev1.PersistentVolumeClaim {
	if v.prime == nil {
		return v.otherPrimes
	}
	return append([]*corev1.PersistentVolumeClaim{v.prime}, v.otherPrimes...)
}

func (v *view) workers() []*corev1.Pod {
	var own []*corev1.Pod
	for _, w := range []*corev1.Pod{v.worker, v.scout} {
		if w != nil {
			own = append(own, w)
		}
	}
	return append(own, v.otherWorkers...)
}

// sweep decides the next delete among temporaries that will not be used any
// more; ok is false when all of them are gone or going.
func (v *view) sweep(why string, primes []*corev1.PersistentVolumeClaim, workers []*corev1.Pod) (Decision, bool) {
	for _, p := range primes {
		if d, ok := v.deletePrime(why, p); ok {
			return d, true
		}
	}
	// What waits for a plugin holds up nothing else.
	var waits *Decision
	for _, p := range primes {
		d, ok := v.awaitPlugin(why, p)
		switch {
		case ok && (d.Step != nil || d.Need != 0):
			return d, true
		case ok && (waits == nil || d.RequeueAfter < waits.RequeueAfter):
			waits = &d
		}
	}
	for _, w := range workers {
		if d, ok := v.deleteWorker(why, w); ok {
			return d, true
		}
	}
	if waits != nil {
		return *waits, true
	}
	return Decision{}, false
}

func (v *view) deleteWorker(why string, w *corev1.Pod) (Decision, bool) {
	if w.DeletionTimestamp != nil {
		return Decision{}, false
	}
	// Success is final, so no cache can be stale about it.
	if !v.Live && !v.succeeded() {
		return Decision{Need: NeedLive, Why: why}, true
	}
	step := DeleteWorker{Namespace: w.Namespace, Name: w.Name, UID: w.UID}
	if v.Live && !v.succeeded() && ended(w) {
		step.ResourceVersion = w.ResourceVersion // that it has ended is why it goes
	}
	return Decision{Why: why, Step: step}, true
}

// deletePrime decides the steps that see off a prime whose volume is not to be
// handed over. The volume is temporary too, so its policy becomes Delete before
// the prime goes; unless it is somebody's, then it becomes Retain.
func (v *view) deletePrime(why string, p *corev1.PersistentVolumeClaim) (Decision, bool) {
	pv := v.heldBy(p.UID)
	lent := pv != nil && pv.DeletionTimestamp == nil && originOf(p, pv) == foreignVolume && !v.protected(pv)
	kept := pv != nil && originOf(p, pv) != foreignVolume && keeps(pv)
	switch {
	case p.DeletionTimestamp != nil && !lent && !kept:
		return Decision{}, false
	case !v.Live:
		return Decision{Need: NeedLive, Why: why}, true
	case lent:
		return v.protect(pv), true
	case kept:
		return Decision{Why: why, Step: SetReclaimPolicy{
			Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
			Policy: corev1.PersistentVolumeReclaimDelete,
		}}, true
	}
	// In the very version that was judged with its volume: bound to somebody's
	// volume since, it must not go before that is protected.
	return Decision{Why: why, Step: DeletePrime{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}}, true
}

// keeps says that the volume of a prime that is to go would stay behind.
func keeps(pv *corev1.PersistentVolume) bool {
	return pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeBound &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// partial is a volume that a prime of this claim left behind, half filled and
// kept by its policy. It is labelled for people to find, never deleted.
func (v *view) partial() *corev1.PersistentVolume {
	for i := range v.Volumes {
		pv := &v.Volumes[i]
		if pv.Status.Phase != corev1.VolumeReleased || pv.DeletionTimestamp != nil ||
			pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
			pv.Labels[v1alpha1.LabelPartial] != "" || pv.Labels[v1alpha1.LabelRole] != "" {
			continue
		}
		if ref := pv.Spec.ClaimRef; ref != nil && v.names(ref) {
			return pv
		}
	}
	return nil
}
