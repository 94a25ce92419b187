package populate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// notCopied are the prefixes of annotations that speak of the claim itself, or
// of what a controller did to it.
var notCopied = []string{
	"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/", "sluice.dev/",
}

// newPrime is the prime of attempt n: the claim in everything that decides
// which volume it gets, and in nothing else; more is what a plugin adds.
func (v *view) newPrime(more *Answer) *corev1.PersistentVolumeClaim {
	spec := v.claim.Spec.DeepCopy()
	annotations := maps.Clone(v.claim.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return slices.ContainsFunc(notCopied, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	if annotations == nil {
		annotations = map[string]string{}
	}
	if node := v.claim.Annotations[annSelectedNode]; node != "" && v.waitsForConsumer() {
		annotations[annSelectedNode] = node
	}
	// What a plugin adds does not replace what marks the prime as ours.
	marks := labels(v.ClaimUID, v.n, v1alpha1.RolePrime)
	for key, value := range more.Labels {
		if _, ours := marks[key]; !ours {
			marks[key] = value
		}
	}
	maps.Copy(annotations, more.Annotations)
	var finalizers []string
	if v.fills() {
		finalizers = []string{v1alpha1.FinalizerPlugin}
		annotations[v1alpha1.AnnotationPopulator] = v.Populator.Name
	}
	annotations[v1alpha1.AnnotationNonce] = v.pop.Spec.Nonce
	annotations[v1alpha1.AnnotationClaim] = v.Namespace + "/" + v.Name
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.namespace, Name: v.name(),
			Labels:          marks,
			Annotations:     annotations,
			Finalizers:      finalizers,
			OwnerReferences: v.owners(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               slices.Clone(v.primeModes()),
			Resources:                 spec.Resources,
			StorageClassName:          spec.StorageClassName,
			VolumeMode:                spec.VolumeMode,
			VolumeAttributesClassName: spec.VolumeAttributesClassName,
		},
	}
}

// admitted is what remains when no rule has anything against it: the record,
// the token, the finalizer where the temporaries live elsewhere, the prime, in
// that order.
func admitted(v *view) Decision {
	if v.lingering() {
		return Decision{RequeueAfter: recheck, Why: WhyClearing}
	}
	if d, ok := v.judged(); ok {
		return d
	}
	switch {
	case v.pop == nil, v.n == 0:
		if d, ok := v.slot(); ok {
			return d
		}
		if v.pop == nil {
			return v.createPopulation(WhyCreatePopulation, v.highest+1)
		}
		return v.allocate(WhyFirstAttempt)
	}
	if d, ok := v.nameTaken(); ok {
		return d
	}
	if d, ok := v.refused(CreatePrime{}); ok {
		return d
	}
	more, d, ok := v.mutation()
	switch {
	case ok:
		return d
	case !v.Live:
		return Decision{Need: NeedLive, Why: WhyCreatePrime}
	}
	if d, ok := v.hold(); ok {
		return d
	}
	return Decision{Why: WhyCreatePrime, Step: CreatePrime{Prime: v.newPrime(more)}}
}

// nameTaken ends an attempt whose name something else bears: the next attempt
// has another name.
func (v *view) nameTaken() (Decision, bool) {
	kind, taken := v.taken(v.n)
	refused := v.Refused.Reason == v1alpha1.ReasonNameTaken && (v.lastRefused(CreatePrime{}) || v.lastRefused(CreateScout{}) || v.lastRefused(CreateWorker{}))
	switch {
	case taken:
		return v.fail(WhyNameTaken, ending{reason: v1alpha1.ReasonNameTaken, message: fmt.Sprintf(
			"%s %q in namespace %q is not of Sluice's making; the next attempt takes another name", kind, v.name(), v.namespace)}), true
	case refused: // whoever looked at what stands there knows what is wrong with it
		return v.fail(WhyNameTaken, ending{reason: v1alpha1.ReasonNameTaken, message: clean(v.Refused.Message)}), true
	}
	return Decision{}, false
}

// lastRefused says that the last write was a step of this kind and was refused.
func (v *view) lastRefused(step Step) bool {
	return v.Refused.Reason != "" && v.Refused.Step == Kind(step)
}

// refused waits where the API server refused such a step, and lets it be tried
// again after a while.
func (v *view) refused(step Step) (Decision, bool) {
	if !v.lastRefused(step) {
		return Decision{}, false
	}
	wait := v.left(refusedAgain, v.Refused.At)
	if wait <= 0 {
		return Decision{}, false
	}
	return v.wait(WhyRefused, &obstacle{reason: v.Refused.Reason, message: v.Refused.Message, act: true, again: wait}), true
}

// heed keeps a step from being taken again right after the API server refused
// one of its kind: the refusal is told, and the step waits.
func (v *view) heed(d Decision) Decision {
	if d.Step == nil || !v.lastRefused(d.Step) {
		return d
	}
	wait := v.left(refusedAgain, v.Refused.At)
	if wait <= 0 {
		return d
	}
	if _, ok := d.Step.(CreatePopulation); ok {
		return v.recordRefused(wait)
	}
	phase := v.status().Phase
	if _, status := d.Step.(WriteStatus); status || v.claim == nil || v.pop == nil ||
		phase == v1alpha1.PhaseSucceeded || phase == v1alpha1.PhaseFailed {
		return Decision{RequeueAfter: wait, Why: WhyRefused} // nothing can be told, or nothing better
	}
	if phase == "" {
		phase = v1alpha1.PhaseWaiting
	}
	return v.say(WhyRefused, wait, report{phase: phase, reason: v.Refused.Reason, message: v.Refused.Message, event: warning, keepSource: true})
}

// recordRefused tells of a claim whose Population the API server refuses. There
// is no condition to remember that it was told, so whoever tells it has to.
func (v *view) recordRefused(wait time.Duration) Decision {
	d := Decision{RequeueAfter: wait, Why: WhyRefused}
	if !v.Refused.Told {
		d.Event = &Event{Type: warning, Reason: v.Refused.Reason, Message: "The record of the claim's population cannot be made: " + clean(v.Refused.Message)}
	}
	return d
}

// primeStands is the rule of an attempt that has its prime and no worker.
func primeStands(v *view) (Decision, bool) {
	p := v.prime
	if p == nil {
		return Decision{}, false
	}
	if v.recorded() {
		return v.workerMissing(), true
	}
	if p.DeletionTimestamp != nil {
		return v.fail(WhyPrimeGoing, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Prime %q was deleted", p.Name)}), true
	}
	name, bound := boundTo(p)
	if p.Status.Phase == corev1.ClaimLost {
		return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Volume %q of prime %q is gone", name, p.Name)}), true
	}
	if !bound {
		if v.scouting() && !awaitsPlugin(p) {
			return v.sendScout(), true
		}
		return v.primePending(), true
	}
	pv := v.volume(name)
	switch originOf(p, pv) {
	case foreignVolume:
		return v.fail(WhyPrimeForeign, v.boundToForeign(name)), true
	case provisioned:
		if pv.Status.Phase == corev1.VolumeBound && pv.DeletionTimestamp == nil {
			if d, ok := v.recallScout(); ok {
				return d, true
			}
			return v.begin(pv), true
		}
	case unknown:
	}
	return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Volume %q of prime %q was released or deleted", name, p.Name)}), true
}

// begin begins what fills the volume of the prime: the plugin, or a worker.
func (v *view) begin(pv *corev1.PersistentVolume) Decision {
	if v.fills() || awaitsPlugin(v.prime) {
		return v.startFill(pv)
	}
	return v.createWorker(pv)
}

func (v *view) boundToForeign(volume string) ending {
	return ending{reason: v1alpha1.ReasonPrimeBoundToForeign, message: fmt.Sprintf(
		"Kubernetes bound prime %q to volume %q, which was not provisioned for it; the volume is given back, and the next attempt has another", v.name(), volume)}
}

// workerMissing is the case of a recorded worker that is not there. Only if this
// very manager's last write was to create it, and was refused, was it never
// made. Else it vanished, and whatever it wrote is not to be trusted, nor
// written over while it may still run.
func (v *view) workerMissing() Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyLost}
	}
	if d, ok := v.nameTaken(); ok {
		return d
	}
	if v.lastRefused(CreateWorker{}) {
		return v.wait(WhyRefused, &obstacle{reason: v.Refused.Reason, message: v.Refused.Message, act: true, again: refusedAgain})
	}
	return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Worker %q vanished", v.name())})
}

// workerLost is the rule of an attempt of which nothing is left.
func workerLost(v *view) (Decision, bool) {
	if v.n == 0 || v.failed() != nil || (!v.recorded() && len(v.heldByName(v.n)) == 0) {
		return Decision{}, false
	}
	return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Prime %q vanished", v.name())}), true
}

// primePending is the case of a prime that waits for its volume.
func (v *view) primePending() Decision {
	p := v.prime
	if p.Spec.VolumeName == "" && v.waitsForConsumer() && !v.scouting() {
		mine, wanted := p.Annotations[annSelectedNode], v.claim.Annotations[annSelectedNode]
		if wanted != "" && mine != wanted {
			e := ending{reason: v1alpha1.ReasonProvisioningFailed, message: fmt.Sprintf("The claim was given another node than prime %q", p.Name)}
			if mine == "" {
				e.message = fmt.Sprintf("No volume can be provisioned for node %q, so another node is chosen", wanted)
				if v.PrimeProblem.Message != "" {
					e.message += ": " + clean(v.PrimeProblem.Message)
				}
				e.node = wanted
			}
			return v.fail(WhyNodeGone, e)
		}
	}
	if v.PrimeProblem.Reason != "" {
		return v.say(WhyPrimePending, 10*recheck, report{
			phase: v1alpha1.PhaseProvisioning, reason: v1alpha1.ReasonProvisioningFailed, event: warning,
			message: fmt.Sprintf("Prime %q has no volume yet, which the driver goes on to try: %s", p.Name, clean(v.PrimeProblem.Message)),
		})
	}
	if wait := v.left(lasting, p.CreationTimestamp.Time); wait > 0 {
		return Decision{RequeueAfter: max(wait, 100*time.Millisecond), Why: WhyPrimePending}
	}
	return v.say(WhyPrimePending, 10*recheck, report{
		phase: v1alpha1.PhaseProvisioning, reason: v1alpha1.ReasonProvisioning,
		message: fmt.Sprintf("Prime %q waits for its volume", p.Name),
	})
}
