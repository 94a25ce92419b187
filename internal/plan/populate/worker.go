package populate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
)

// unschedulablePatience is how long a worker may find no node before it is told.
const unschedulablePatience = time.Minute

// clean makes somebody else's text fit for a message of ours.
func clean(text string) string { return worker.Clean(text) }

// createWorker decides to record and create the worker of attempt n on the
// volume of its prime.
func (v *view) createWorker(pv *corev1.PersistentVolume) Decision {
	if d, ok := v.mayCreate(CreateWorker{}); !ok {
		return d
	}
	if ob := v.notWritable(pv); ob != nil {
		return v.wait(WhyWaiting, ob)
	}
	step := CreateWorker{Record: v.record(pv), Worker: v.newWorker(pv)}
	if len(v.Rendered.Files) > 0 {
		step.Files = v.newFiles()
	}
	return Decision{Step: step, Why: WhyCreateWorker}
}

// mayCreate says whether a worker or its scout, whichever the step makes, may be
// made now, and was rendered; if not, what to do about it.
func (v *view) mayCreate(step Step) (Decision, bool) {
	if v.misplaced() {
		return v.fail(WhyMoved, ending{reason: v1alpha1.ReasonPlacementChanged, message: fmt.Sprintf(
			"The source or its namespace changed before there was a worker, which belongs into namespace %q now instead of %q", v.place, v.namespace)}), false
	}
	if d, ok := v.hindered(); ok {
		return d, false
	}
	if d, ok := v.nameTaken(); ok {
		return d, false
	}
	if d, ok := v.refused(step); ok {
		return d, false
	}
	if d, ok := v.hold(); ok {
		return d, false
	}
	r := v.Rendered
	switch {
	case r == nil || r.Attempt != v.n:
		if d, ok := v.computed(); ok {
			return d, false
		}
		return Decision{Need: NeedRender, Why: WhyCreateWorker}, false
	case r.Reason != "" || r.Pod == nil:
		return v.notRendered(), false
	}
	if ob := v.outOfReach(r.Objects); ob != nil {
		// The source was read live; the caches have yet to see it.
		ob.again = recheck
		return v.wait(WhyWaiting, ob), false
	}
	return Decision{}, true
}

// hindered waits where the checks of admission do not hold any more for an
// attempt that has its prime.
func (v *view) hindered() (Decision, bool) {
	ob := v.obstacle()
	if ob == nil || ob.reason == v1alpha1.ReasonWaitingForConsumer {
		return Decision{}, false
	}
	if ob.reason == v1alpha1.ReasonNotGranted {
		ob.reason = v1alpha1.ReasonGrantRevoked
	}
	return v.wait(WhyWaiting, ob), true
}

// notRendered is what becomes of an attempt whose worker could not be rendered.
// A template fails for good, until it or the source is changed; a source that
// went away, or must not be read any more, may come back and is waited for.
func (v *view) notRendered() Decision {
	reason, message := v.Rendered.Reason, clean(v.Rendered.Message)
	switch reason {
	case v1alpha1.ReasonNotGranted:
		reason = v1alpha1.ReasonGrantRevoked
		fallthrough
	case v1alpha1.ReasonSourceNotFound, v1alpha1.ReasonSourceKindNotReadable, v1alpha1.ReasonInvalidSource:
		// The caches, which raise no obstacle, have yet to see it.
		return v.wait(WhyWaiting, &obstacle{
			reason: reason, message: message, again: recheck, act: reason != v1alpha1.ReasonSourceNotFound,
		})
	case "":
		reason = v1alpha1.ReasonTemplateFailed
	}
	return v.fail(WhyTemplate, ending{reason: reason, message: message, permanent: true})
}

// record is the status that says that a worker of attempt n may exist from now
// on. While the API server refuses the worker, what is told stays what it was.
func (v *view) record(pv *corev1.PersistentVolume) WriteStatus {
	r := report{
		phase: v1alpha1.PhasePopulating, reason: v1alpha1.ReasonPopulating,
		message: fmt.Sprintf("Worker %q is being started", v.name()),
	}
	if v.lastRefused(CreateWorker{}) && v.Refused.Reason == v.reason() {
		r.phase, r.reason, r.message = v1alpha1.PhaseWaiting, v.Refused.Reason, v.Refused.Message
	}
	r.change = func(st *v1alpha1.PopulationStatus) {
		st.Prime = &v1alpha1.TemporaryReference{Namespace: v.prime.Namespace, Name: v.prime.Name, UID: v.prime.UID}
		st.VolumeName, st.VolumeUID = pv.Name, pv.UID
		if st.StartedAt == nil {
			st.StartedAt = v.time()
		}
	}
	w, _ := v.write(r)
	return w
}

// newWorker is the rendered Pod with its identity, its owner and its volumes.
func (v *view) newWorker(pv *corev1.PersistentVolume) *corev1.Pod {
	w := v.Rendered.Pod.DeepCopy()
	v.identify(w, v.name(), v1alpha1.RoleWorker)
	v.asOwner(w, pv)
	w.Annotations[AnnotationPrimeUID] = string(v.prime.UID)
	w.Annotations[AnnotationSourceGeneration] = strconv.FormatInt(v.Source.Generation, 10)
	w.Annotations[AnnotationPopulatorGeneration] = strconv.FormatInt(v.Populator.Generation, 10)
	w.Annotations[AnnotationReclaimPolicy] = string(pv.Spec.PersistentVolumeReclaimPolicy)

	spec := &w.Spec
	spec.ActiveDeadlineSeconds = v.Populator.Spec.DeadlineSeconds
	spec.Volumes = append(spec.Volumes, targetVolume(v.name()))
	if len(v.Rendered.Files) > 0 {
		spec.Volumes = append(spec.Volumes, corev1.Volume{
			Name: v1alpha1.FilesVolume,
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: v.name()}},
			},
		})
	}
	return w
}

// identify makes a rendered Pod one of attempt n, in a role, with all that the
// planner owns of both roles.
func (v *view) identify(w *corev1.Pod, name, role string) {
	w.Namespace, w.Name, w.GenerateName = v.namespace, name, ""
	w.OwnerReferences = v.owners()
	if w.Labels == nil {
		w.Labels = map[string]string{}
	}
	maps.Copy(w.Labels, labels(v.ClaimUID, v.n, role))
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations[v1alpha1.AnnotationNonce] = v.pop.Spec.Nonce
	w.Annotations[v1alpha1.AnnotationClaim] = v.Namespace + "/" + v.Name

	spec := &w.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.EnableServiceLinks = ptr.To(false)
	spec.TerminationGracePeriodSeconds = ptr.To[int64](5)
	// Where the volume can be reached is written on the volume; what the waiting
	// Pod tolerates, the worker must tolerate too, to get to the same node.
	if v.waitsForConsumer() {
		for i := range v.Consumers {
			if v.Consumers[i].DeletionTimestamp == nil {
				spec.Tolerations = addTolerations(spec.Tolerations, v.Consumers[i].Spec.Tolerations)
				break
			}
		}
	}
}

// targetVolume is the Pod's volume of a prime.
func targetVolume(prime string) corev1.Volume {
	return corev1.Volume{
		Name: v1alpha1.TargetVolume,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: prime},
		},
	}
}

func addTolerations(to, more []corev1.Toleration) []corev1.Toleration {
	for _, t := range more {
		if !slices.ContainsFunc(to, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			to = append(to, t)
		}
	}
	return to
}

// newFiles is the ConfigMap of the worker's files. The prime owns it, so that
// it goes with the attempt whatever way the attempt ends.
func (v *view) newFiles() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.namespace, Name: v.name(),
			Labels: labels(v.ClaimUID, v.n, v1alpha1.RoleWorker),
			Annotations: map[string]string{
				v1alpha1.AnnotationNonce: v.pop.Spec.Nonce,
				v1alpha1.AnnotationClaim: v.Namespace + "/" + v.Name,
			},
			OwnerReferences: ownedBy(v.prime),
		},
		Immutable:  ptr.To(true),
		BinaryData: v.Rendered.Files,
	}
}

// workerStands is the rule of an attempt that has its worker.
func workerStands(v *view) (Decision, bool) {
	w := v.worker
	if w == nil {
		return Decision{}, false
	}
	record := v.status().Prime
	switch {
	case !v.recorded() || string(record.UID) != w.Annotations[AnnotationPrimeUID]:
		return v.fail(WhyWorkerUntrusted, ending{reason: v1alpha1.ReasonWorkerFailed,
			message: fmt.Sprintf("Worker %q was not made for the prime of this attempt", w.Name)}), true
	case v.prime == nil || v.prime.UID != record.UID:
		return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Prime %q vanished", v.name())}), true
	}
	if name, bound := boundTo(v.prime); bound && originOf(v.prime, v.volume(name)) == foreignVolume {
		return v.fail(WhyPrimeForeign, v.boundToForeign(name)), true
	}
	if v.prime.Status.Phase == corev1.ClaimLost {
		return v.fail(WhyLost, ending{reason: v1alpha1.ReasonVolumeLost,
			message: fmt.Sprintf("Volume %q of prime %q is gone", v.prime.Spec.VolumeName, v.prime.Name)}), true
	}
	p, end := progressOf(w)
	if p != succeeded {
		if ob := checkGrant(v); ob != nil {
			return v.fail(WhyRevoked, ending{reason: v1alpha1.ReasonGrantRevoked, message: ob.message}), true
		}
		if was, is := v.readsFrom(), v.Source.Namespace; was != "" && is != "" && was != is {
			// Whether the grant of the namespace that it reads from stands is not
			// looked at any more.
			return v.fail(WhyMoved, ending{reason: v1alpha1.ReasonPlacementChanged, message: fmt.Sprintf(
				"The claim was pointed to a source in namespace %q while worker %q read from namespace %q", is, w.Name, was)}), true
		}
	}
	switch p {
	case pending:
		if v.prime.DeletionTimestamp != nil {
			// The kubelet starts no Pod whose claim is being deleted.
			return v.fail(WhyPrimeGoing, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Prime %q was deleted", v.name())}), true
		}
		return v.workerPending(), true
	case running:
		return v.workerRunning(), true
	case succeeded:
		return v.handOver(), true
	case failed:
	}
	return v.fail(WhyAttemptEnded, v.workerEnding(end)), true
}

// workerPending tells why the worker does not start, if it takes long.
func (v *view) workerPending() Decision {
	w := v.worker
	r := report{phase: v1alpha1.PhasePopulating, event: warning}
	if message, wait := v.objectMissing(); message != "" {
		switch {
		case v.outdated():
			return v.fail(WhyWorkerOutdated, v.outdatedEnding(v1alpha1.ReasonSourceMissing))
		case wait > 0:
			return Decision{RequeueAfter: wait, Why: WhyWorkerPending}
		}
		r.reason, r.message = v1alpha1.ReasonSourceMissing, message
		return v.say(WhyWorkerPending, 10*recheck, r)
	}
	if noNode(w) != nil && v.outdated() {
		return v.fail(WhyWorkerOutdated, v.outdatedEnding(v1alpha1.ReasonWorkerUnschedulable))
	}
	if d, ok := v.unschedulable(w, r.phase); ok {
		return d
	}
	if waiting := cannotStart(w); waiting != nil {
		if v.outdated() {
			return v.fail(WhyWorkerOutdated, v.outdatedEnding(v1alpha1.ReasonWorkerImageFailed))
		}
		r.reason = v1alpha1.ReasonWorkerImageFailed
		r.message = fmt.Sprintf("Worker %q cannot start; correct its image, or Populator %q: %s: %s", w.Name, v.populatorName(), waiting.Reason, clean(waiting.Message))
		return v.say(WhyWorkerPending, 10*recheck, r)
	}
	if wait := v.left(lasting, w.CreationTimestamp.Time); wait > 0 {
		return Decision{RequeueAfter: max(wait, 100*time.Millisecond), Why: WhyWorkerPending}
	}
	r.event, r.reason = "", v1alpha1.ReasonPopulating
	r.message = fmt.Sprintf("Worker %q is being started", w.Name)
	if v.WorkerProblem.Message != "" {
		r.message = fmt.Sprintf("Worker %q has not started: %s", w.Name, clean(v.WorkerProblem.Message))
	}
	return v.say(WhyWorkerPending, 10*recheck, r)
}

// outdated says that a worker was made of an earlier source or populator. One
// that runs goes on; one that cannot start may be what the change mends.
func (v *view) outdated() bool {
	changed := func(annotation string, now int64) bool {
		was := v.worker.Annotations[annotation]
		return was != "" && was != strconv.FormatInt(now, 10)
	}
	return v.Populator != nil && changed(AnnotationPopulatorGeneration, v.Populator.Generation) ||
		v.Source.State == SourceFound && changed(AnnotationSourceGeneration, v.Source.Generation)
}

func (v *view) outdatedEnding(reason string) ending {
	e := v.workerEnding(nil)
	e.reason, e.message = reason, fmt.Sprintf("Worker %q cannot start and its source or populator has changed", v.worker.Name)
	return e
}

// cannotStart is the state of a container that somebody must do something for.
func cannotStart(w *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, list := range [][]corev1.ContainerStatus{w.Status.InitContainerStatuses, w.Status.ContainerStatuses} {
		for i := range list {
			waiting := list[i].State.Waiting
			if waiting == nil {
				continue
			}
			switch waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
				"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
				return waiting
			}
		}
	}
	return nil
}

// workerRunning tells that the population has started, if it takes long enough
// for anybody to ask.
func (v *view) workerRunning() Decision {
	w := v.worker
	started := w.CreationTimestamp.Time
	if c := workerStatus(w); c != nil && c.State.Running != nil {
		started = c.State.Running.StartedAt.Time
	}
	if wait := v.left(lasting, started); wait > 0 {
		return Decision{RequeueAfter: max(wait, 100*time.Millisecond), Why: WhyWorkerRunning}
	}
	what := "its source"
	if s := v.status().Source; s != nil {
		what = s.Summary
	}
	progress, again := v.progressTold(v.status().Progress)
	r := report{
		phase: v1alpha1.PhasePopulating, reason: v1alpha1.ReasonPopulationStarted, event: normal,
		message: fmt.Sprintf("Worker %q on node %q fills the volume from %s", w.Name, w.Spec.NodeName, what),
		change: func(st *v1alpha1.PopulationStatus) {
			st.NodeName, st.Progress = w.Spec.NodeName, progress
		},
	}
	pv := v.volume(v.prime.Spec.VolumeName)
	if pod := v.stranded(pv); pod != nil {
		r.reason, r.event, r.message = v1alpha1.ReasonVolumeUnreachableForPod, warning, strandedMessage(pod, pv)
	}
	return v.say(WhyWorkerRunning, again, r)
}
