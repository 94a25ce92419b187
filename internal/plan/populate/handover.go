package populate

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
)

// handOver is the case of a worker that succeeded on the recorded prime. All of
// it is decided on one live observation, and the volume is patched under the
// resourceVersion of that observation: a volume that was Released meanwhile,
// and that its provisioner may already be destroying, refuses the patch.
func (v *view) handOver() Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyHandOverPrime}
	}
	name, bound := boundTo(v.prime)
	pv := v.volume(name)
	policy := corev1.PersistentVolumeReclaimPolicy(v.worker.Annotations[AnnotationReclaimPolicy])
	if !bound || !whole(v.prime, pv, v.status().VolumeUID, policy) {
		return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf(
			"Volume %q was released, deleted or changed before it was handed over", name)})
	}
	if v.prime.DeletionTimestamp == nil {
		// In any version: it is bound to its own volume, and stays so. Kubernetes
		// notes on it, in this very moment, that no Pod uses it any more.
		return Decision{Why: WhyHandOverPrime, Step: DeletePrime{Namespace: v.prime.Namespace, Name: v.prime.Name, UID: v.prime.UID}}
	}
	return v.rebind(pv)
}

// rebind replaces the claimRef of a volume that was judged on a live
// observation.
func (v *view) rebind(pv *corev1.PersistentVolume) Decision {
	var modes []corev1.PersistentVolumeAccessMode
	if v.readOnly() {
		modes = v.claim.Spec.AccessModes
	}
	d := Decision{Why: WhyHandOverRebind}
	if pod := v.stranded(pv); pod != nil && v.reason() != v1alpha1.ReasonVolumeUnreachableForPod {
		d.Event = &Event{Type: warning, Reason: v1alpha1.ReasonVolumeUnreachableForPod, Message: strandedMessage(pod, pv)}
	}
	d.Step = Rebind{
		AccessModes: modes,
		Volume:      pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
		ClaimRef: corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim",
			Namespace: v.claim.Namespace, Name: v.claim.Name, UID: v.claim.UID, ResourceVersion: v.claim.ResourceVersion,
		},
		Labels: volumeLabels(v.ClaimUID, v.n, RoleFilled),
	}
	return d
}

// handedOver is the rule of a claim whose filled volume waits for Kubernetes to
// bind it. The worker is kept until then: what it reported goes into the record.
func handedOver(v *view) (Decision, bool) {
	pv := v.heldBy(v.ClaimUID)
	if !v.filledFor(pv) || v.claim.Spec.VolumeName != "" || pv.DeletionTimestamp != nil {
		return Decision{}, false
	}
	if v.pop == nil {
		return Decision{RequeueAfter: recheck, Why: WhyBinding}, true
	}
	if v.worker != nil {
		if _, end := progressOf(v.worker); end != nil {
			if wait := v.left(lasting, end.FinishedAt.Time); wait > 0 {
				return Decision{RequeueAfter: wait, Why: WhyBinding}, true
			}
		}
	}
	return v.say(WhyBinding, recheck, report{
		phase: v1alpha1.PhaseBinding, reason: v1alpha1.ReasonBinding,
		message: fmt.Sprintf("Volume %q is filled; Kubernetes is binding the claim to it", pv.Name),
		change:  func(st *v1alpha1.PopulationStatus) { st.VolumeName, st.VolumeUID = pv.Name, pv.UID },
	}), true
}

// bound is the rule of a claim that has a volume: the one filled for it, or
// another, and then there is nothing left to do.
func bound(v *view) (Decision, bool) {
	name := v.claim.Spec.VolumeName
	if name == "" {
		return Decision{}, false
	}
	pv := v.volume(name)
	ours := v.filledFor(pv) && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == v.ClaimUID
	switch {
	case v.pop == nil:
		return v.clearAway(Decision{Why: WhyNotAsked}), true
	case ours && v.claim.Annotations[annBindCompleted] == "":
		return Decision{RequeueAfter: recheck, Why: WhyBinding}, true
	case ours:
		return v.succeed(pv), true
	}
	r := report{
		phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonBoundToForeignVolume, event: warning, keepSource: true,
		message: fmt.Sprintf("The claim is bound to volume %q, which was not filled for it; to have it filled, delete it and create it anew", name),
		change: func(st *v1alpha1.PopulationStatus) {
			st.Prime, st.Fill, st.VolumeName, st.VolumeUID, st.Progress = nil, nil, "", "", nil
		},
	}
	if pv == nil && v.claim.Status.Phase == corev1.ClaimLost {
		r.reason, r.message = v1alpha1.ReasonVolumeLost, fmt.Sprintf("The claim is bound to volume %q, which no longer exists; delete it and create it anew", name)
	}
	d := v.say(WhyBoundElsewhere, 0, r)
	switch {
	case d.Step != nil && !v.Live:
		return Decision{Need: NeedLive, Why: WhyBoundElsewhere}, true
	case d.Step != nil:
		return d, true
	}
	return v.clearAway(d), true
}

// clearAway sees off whatever is left of a claim that is bound, and then
// decides what was decided.
func (v *view) clearAway(then Decision) Decision {
	if d, ok := v.sweep(WhyBoundElsewhere, v.primes(), v.workers()); ok {
		return d
	}
	if d, ok := v.markPartial(); ok {
		return d
	}
	if d, ok := v.letGo(); ok {
		return d
	}
	return then
}

// succeed records the success, with what the worker reported, before the worker
// goes.
func (v *view) succeed(pv *corev1.PersistentVolume) Decision {
	attempt := v.n
	if n, err := strconv.ParseInt(pv.Labels[v1alpha1.LabelAttempt], 10, 32); err == nil {
		attempt = int32(n)
	}
	result := v1alpha1.Result{Attempt: attempt, Succeeded: true, EndedAt: v.time()}
	var said worker.Result
	var end *corev1.ContainerStateTerminated
	node := v.status().NodeName
	if v.worker != nil && v.n == attempt {
		e := v.workerEnding(nil)
		result.SourceGeneration, result.PopulatorGeneration = e.source, e.populator
		node = v.worker.Spec.NodeName
		if _, end = progressOf(v.worker); end != nil {
			result.ExitCode = &end.ExitCode
			at := end.FinishedAt
			result.EndedAt = &at
			said, _ = worker.Parse([]byte(end.Message))
		}
	}
	if last := v.status().Result; last != nil && last.Succeeded && last.Attempt == attempt {
		result = *last // a plugin's, recorded before the hand-over
		result.Failures, said.Message = 0, last.Message
	}
	result.Message = said.Message
	what := "its source"
	if s := v.status().Source; s != nil {
		what = s.Summary
	}
	return v.say(WhySucceeded, 0, report{
		phase: v1alpha1.PhaseSucceeded, reason: v1alpha1.ReasonPopulated, event: normal,
		message: fmt.Sprintf("Volume %q was filled from %s", pv.Name, what),
		change: func(st *v1alpha1.PopulationStatus) {
			st.Result, st.Prime, st.Fill, st.NodeName = &result, nil, nil, node
			st.VolumeName, st.VolumeUID, st.CompletedAt = pv.Name, pv.UID, v.time()
			if st.Source != nil && said.Digest != "" {
				st.Source.Digest = said.Digest
			}
			st.Progress = progressDone(st.Progress, said, end, pv)
		},
	})
}
