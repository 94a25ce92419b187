package populate

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A plugin that fills has no worker Pod. What a worker does for a population by
// merely standing there is done otherwise:
//
//	a prime cannot vanish under the writer    FinalizerPlugin on the prime, from its creation
//	what may have begun is known              status.fill, written before the plugin is called
//	success and its report are kept           status.result, written before the hand-over
//	the writer is stopped before the volume   CleanupFill done, before the finalizer goes
//
// So the prime of a fill is deleted last, when the claim is bound, and its
// finalizer is the durable word that the plugin has yet to clean up: it outlives
// the claim, the Population and the manager. The id of a fill is its prime's UID,
// which nobody can forge and no other attempt has.

// fills says that the plugin fills the volume of a prime that is made now.
func (v *view) fills() bool { return v.can(v1alpha1.PluginFills) }

// awaitsPlugin says that a prime waits for its plugin when it is deleted.
func awaitsPlugin(p *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(p.Finalizers, v1alpha1.FinalizerPlugin)
}

// startFill decides to record and begin the fill of attempt n on the volume of
// its prime.
func (v *view) startFill(pv *corev1.PersistentVolume) Decision {
	if d, ok := v.hindered(); ok {
		return d
	}
	if !awaitsPlugin(v.prime) {
		return v.fail(WhyOtherWay, ending{reason: v1alpha1.ReasonPluginFailed, message: fmt.Sprintf(
			"Prime %q was not made for a plugin that fills", v.prime.Name)})
	}
	if d, ok := v.refused(StartFill{}); ok {
		return d
	}
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyStartFill}
	}
	r := report{
		phase: v1alpha1.PhasePopulating, reason: v1alpha1.ReasonPopulating,
		message: fmt.Sprintf("Plugin of Populator %q is asked to fill volume %q", v.populatorName(), pv.Name),
	}
	r.change = func(st *v1alpha1.PopulationStatus) {
		st.Prime = &v1alpha1.TemporaryReference{Namespace: v.prime.Namespace, Name: v.prime.Name, UID: v.prime.UID}
		st.VolumeName, st.VolumeUID = pv.Name, pv.UID
		st.Fill = &v1alpha1.PluginFill{
			ID: v.prime.UID, Populator: v.Populator.Name, PopulatorGeneration: v.Populator.Generation,
			ReclaimPolicy: pv.Spec.PersistentVolumeReclaimPolicy, StartedAt: v.time(),
		}
		if st.StartedAt == nil {
			st.StartedAt = v.time()
		}
	}
	record, _ := v.write(r)
	return Decision{Why: WhyStartFill, Step: StartFill{Record: record, Start: v.callFill(CallStart, pv)}}
}

// callFill is a call about the fill of attempt n.
func (v *view) callFill(c Call, pv *corev1.PersistentVolume) CallPlugin {
	call := v.calling(c, string(v.prime.UID))
	if f := v.status().Fill; f != nil {
		call.Populator = f.Populator
	}
	if pv != nil {
		call.Volume, call.VolumeUID = pv.Name, pv.UID
	}
	return call
}

// fillStands is the rule of an attempt whose volume a plugin was asked to fill.
func fillStands(v *view) (Decision, bool) {
	f := v.status().Fill
	if f == nil || !v.recorded() {
		return Decision{}, false
	}
	if v.prime == nil || v.prime.UID != f.ID {
		return v.fillLost(f), true
	}
	name, bound := boundTo(v.prime)
	pv := v.volume(name)
	if !bound || originOf(v.prime, pv) != provisioned || pv.Status.Phase != corev1.VolumeBound || pv.DeletionTimestamp != nil {
		return v.failFill(f, WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf(
			"Volume %q was released, deleted or changed before it was handed over", name)}), true
	}
	if r := v.status().Result; r != nil && r.Succeeded && r.Attempt == v.n {
		return v.handOverFill(f, pv), true
	}
	if ob := checkGrant(v); ob != nil {
		return v.failFill(f, WhyRevoked, ending{reason: v1alpha1.ReasonGrantRevoked, message: ob.message}), true
	}
	a := v.answer(CallStatus, string(f.ID))
	if a != nil && a.Unavailable == "" && a.State == FillSucceeded && a.Failure == nil && !a.Unknown {
		return v.filled(f, pv, a), true
	}
	if d, late := v.overdue(f); late {
		return d, true
	}
	// Start is repeated only by the process that recorded it, and only as long as
	// it is certain that the plugin has begun nothing. Else a fill that is not
	// known is a fill that was lost.
	call := v.callFill(CallStatus, pv)
	if a != nil && a.Call == CallStart && a.Unavailable != "" && !a.Doubtful {
		call.Call = CallStart
	}
	a, d := v.ask(WhyFillRunning, call, v.silent)
	if a == nil {
		return d, true
	}
	switch {
	case a.Unknown:
		return v.failFill(f, WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf(
			"The plugin of Populator %q does not know the filling of volume %q", f.Populator, name)}), true
	case a.Failure != nil:
		return v.failFill(f, WhyPluginFailed, failureOf(a.Failure)), true
	}
	return v.fillRunning(f, call, a), true
}

// silent tells that the plugin says nothing about a fill that may be running.
func (v *view) silent(reason, message string, again time.Duration) Decision {
	event := normal
	if waitsForSomebody(reason) {
		event = warning
	}
	return v.say(WhyFillRunning, again, report{phase: v1alpha1.PhasePopulating, reason: reason, message: message, event: event, keepSource: true})
}

// overdue ends a fill that takes longer than the Populator allows.
func (v *view) overdue(f *v1alpha1.PluginFill) (Decision, bool) {
	if v.Populator == nil || v.Populator.Spec.DeadlineSeconds == nil || f.StartedAt == nil {
		return Decision{}, false
	}
	if v.left(v.limit(), f.StartedAt.Time) > 0 {
		return Decision{}, false
	}
	return v.failFill(f, WhyOverdue, ending{reason: v1alpha1.ReasonWorkerTimedOut, message: fmt.Sprintf(
		"The plugin of Populator %q took longer than its deadline", f.Populator)}), true
}

func (v *view) limit() time.Duration {
	return time.Duration(*v.Populator.Spec.DeadlineSeconds) * time.Second
}

// fillRunning tells how far the plugin is, and when it is asked again.
func (v *view) fillRunning(f *v1alpha1.PluginFill, call CallPlugin, a *Answer) Decision {
	again := a.At.Add(a.RetryAfter).Sub(v.Now)
	if again > a.RetryAfter { // the clock was set back
		again = 0
	}
	if again <= 0 && !a.Pending {
		call.Call = CallStatus
		return Decision{Why: WhyFillRunning, Step: call}
	}
	again = max(again, 100*time.Millisecond)
	if v.Populator != nil && v.Populator.Spec.DeadlineSeconds != nil && f.StartedAt != nil {
		again = min(again, max(f.StartedAt.Add(v.limit()).Sub(v.Now), 0)+time.Second)
	}
	if f.StartedAt != nil {
		if wait := v.left(lasting, f.StartedAt.Time); wait > 0 && v.reason() == v1alpha1.ReasonPopulating {
			return Decision{RequeueAfter: min(again, wait), Why: WhyFillRunning}
		}
	}
	what := "its source"
	if s := v.status().Source; s != nil {
		what = s.Summary
	}
	message := fmt.Sprintf("The plugin of Populator %q fills volume %q from %s", f.Populator, v.status().VolumeName, what)
	if a.Message != "" {
		message += ": " + a.Message
	}
	return v.say(WhyFillRunning, again, report{
		phase: v1alpha1.PhasePopulating, reason: v1alpha1.ReasonPopulationStarted, message: message, event: normal,
		change: func(st *v1alpha1.PopulationStatus) { st.Progress = v.fillProgress(st.Progress, a) },
	})
}

// fillProgress is the progress to show of a plugin's fill. It is bounded, never
// goes backwards, and changes no more often than every few seconds unless the
// fill has ended.
func (v *view) fillProgress(last *v1alpha1.Progress, a *Answer) *v1alpha1.Progress {
	var before v1alpha1.Progress
	if last != nil {
		before = *last
	}
	limit := capacityOf(v.volume(v.status().VolumeName))
	p := before
	p.Bytes = max(before.Bytes, min(a.Bytes, limit))
	p.TotalBytes = min(a.TotalBytes, limit)
	if a.State == FillSucceeded {
		p.TotalBytes = max(p.TotalBytes, p.Bytes)
		p.Bytes = p.TotalBytes
	}
	if p.TotalBytes > 0 {
		p.TotalBytes = max(p.TotalBytes, p.Bytes)
	}
	since := a.At.Sub(timeOf(before.UpdatedAt))
	if before.UpdatedAt != nil && since >= 0 && since < progressEvery && a.State != FillSucceeded {
		return last
	}
	if n := int64(since.Seconds()); before.UpdatedAt != nil && n > 0 {
		p.BytesPerSecond = (p.Bytes - before.Bytes) / n
	}
	describe(&p)
	if p == before {
		return last
	}
	at := metav1.NewTime(a.At.Truncate(time.Second))
	p.UpdatedAt = &at
	return &p
}

// filled records that the plugin filled the volume, before it is handed over.
func (v *view) filled(f *v1alpha1.PluginFill, pv *corev1.PersistentVolume, a *Answer) Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyFilled}
	}
	r := v1alpha1.Result{
		Attempt: v.n, Succeeded: true, Message: a.Message, EndedAt: v.time(),
		PopulatorGeneration: f.PopulatorGeneration,
	}
	if s := v.status().Source; s != nil {
		r.SourceGeneration = s.Generation
	}
	if last := v.status().Result; last != nil {
		r.Failures = last.Failures
	}
	return v.say(WhyFilled, 0, report{
		phase: v1alpha1.PhaseBinding, reason: v1alpha1.ReasonBinding, keepSource: true,
		message: fmt.Sprintf("Volume %q is filled; Kubernetes is binding the claim to it", pv.Name),
		change: func(st *v1alpha1.PopulationStatus) {
			st.Result, st.Progress = &r, v.fillProgress(st.Progress, a)
			if st.Source != nil && a.Digest != "" {
				st.Source.Digest = a.Digest
			}
		},
	})
}

// handOverFill hands over a volume that is recorded as filled; see handOver.
// The prime stays until the claim is bound: it is what keeps the volume.
func (v *view) handOverFill(f *v1alpha1.PluginFill, pv *corev1.PersistentVolume) Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyHandOverRebind}
	}
	if !whole(v.prime, pv, v.status().VolumeUID, f.ReclaimPolicy) {
		return v.failFill(f, WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf(
			"Volume %q was released, deleted or changed before it was handed over", pv.Name)})
	}
	return v.rebind(pv)
}

// failFill ends an attempt at which a plugin was asked.
func (v *view) failFill(f *v1alpha1.PluginFill, why string, e ending) Decision {
	e.populator = f.PopulatorGeneration
	if s := v.status().Source; s != nil {
		e.source = s.Generation
	}
	return v.fail(why, e)
}

// fillLost is the case of a fill whose prime was removed by force. Nothing holds
// the plugin back any more but this call, so it comes before the record of it
// goes. If nobody can be called, there is nothing to wait for.
func (v *view) fillLost(f *v1alpha1.PluginFill) Decision {
	if !v.Live {
		return Decision{Need: NeedLive, Why: WhyFillLost}
	}
	call := v.calling(CallCleanup, string(f.ID))
	call.Populator, call.Volume, call.VolumeUID = f.Populator, v.status().VolumeName, v.status().VolumeUID
	if v.Populator != nil {
		a, d := v.ask(WhyFillLost, call, v.silent)
		switch {
		case a == nil:
			return d
		case !a.Done && a.Failure == nil:
			return v.cleanAgain(WhyFillLost, call, a)
		}
	}
	return v.failFill(f, WhyLost, ending{reason: v1alpha1.ReasonVolumeLost, message: fmt.Sprintf("Prime %q vanished", v.name())})
}

// cleanAgain repeats a call to clean up that had no end yet, when it is time.
func (v *view) cleanAgain(why string, call CallPlugin, a *Answer) Decision {
	again := a.At.Add(a.RetryAfter).Sub(v.Now)
	if !a.Pending && (again <= 0 || again > a.RetryAfter) {
		return Decision{Why: why, Step: call}
	}
	return Decision{Why: why, RequeueAfter: max(again, 100*time.Millisecond)}
}

// awaitPlugin sees to it that a deleted prime whose plugin may be at work goes only
// when the plugin is done; ok is false for a prime that waits for nobody.
func (v *view) awaitPlugin(why string, p *corev1.PersistentVolumeClaim) (Decision, bool) {
	if p.DeletionTimestamp == nil || !awaitsPlugin(p) {
		return Decision{}, false
	}
	if !v.Live {
		return Decision{Need: NeedLive, Why: why}, true
	}
	populator := p.Annotations[v1alpha1.AnnotationPopulator]
	if populator == "" {
		populator = v.populatorName()
	}
	if populator == "" {
		return v.release(why, p), true // nobody to ask
	}
	pv := v.volume(p.Spec.VolumeName)
	call := CallPlugin{
		Populator: populator, Call: CallCleanup, ID: string(p.UID),
		Namespace: v.Namespace, Name: v.Name, ClaimUID: v.ClaimUID, HandedOver: v.filledFor(pv),
	}
	if pv != nil {
		call.Volume, call.VolumeUID = pv.Name, pv.UID
	}
	left := v.left(cleanupPatience, p.DeletionTimestamp.Time)
	a, d := v.ask(WhyCleanup, call, nil)
	switch {
	case a != nil && (a.Done || a.Failure != nil):
		return v.release(why, p), true
	case left <= 0 && v.called(call):
		// Whatever the clocks say, it was asked once by this process.
		d := v.release(WhyGiveUp, p)
		d.Event = &Event{Type: warning, Reason: v1alpha1.ReasonPluginUnavailable, Message: fmt.Sprintf(
			"Prime %q goes although the plugin of Populator %q has not cleaned up within %s; its storage may need a look", p.Name, populator, cleanupPatience)}
		return d, true
	case a != nil:
		d = v.cleanAgain(WhyCleanup, call, a)
	}
	if d.Step == nil {
		d.RequeueAfter = min(d.RequeueAfter, left+time.Second)
	}
	return d, true
}

// called says that a call was made and is over, well or not.
func (v *view) called(call CallPlugin) bool {
	a := v.answer(call.Call, call.ID)
	return a != nil && !a.Pending
}

// release lets a deleted prime go as far as its plugin is concerned.
func (v *view) release(why string, p *corev1.PersistentVolumeClaim) Decision {
	rest := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerPlugin })
	return Decision{Why: why, Step: ReleasePrime{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Finalizers: rest,
	}}
}
