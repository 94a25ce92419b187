package populate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// plugin has the claim's Populator be one of a plugin that can do some things.
func plugin(can ...v1alpha1.PluginCapability) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Populator.Spec.Worker, o.Populator.Spec.Plugin = nil, &v1alpha1.Plugin{Socket: "/run/sluice/p.sock"}
		o.Populator.Status.Plugin = &v1alpha1.PluginInfo{Name: "vendor.example", Capabilities: can}
	}
}

// answered is an answer that came just now, changed as the case demands.
func answered(call populate.Call, id string, change ...func(*populate.Answer)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		a := populate.Answer{Call: call, ID: id, At: now}
		for _, c := range change {
			c(&a)
		}
		o.Answers = append(o.Answers, a)
	}
}

func pending(a *populate.Answer) { a.Pending = true }

func failure(reason string, permanent bool) func(*populate.Answer) {
	return func(a *populate.Answer) {
		a.Failure = &populate.Failure{Reason: reason, Message: "no", Permanent: permanent}
	}
}

// silent is a call without an answer, which is repeated after a while.
func silent(reason string, ago time.Duration) func(*populate.Answer) {
	return func(a *populate.Answer) {
		a.Unavailable, a.Reason, a.RetryAfter, a.At = "no answer", reason, 10*time.Second, now.Add(-ago)
	}
}

// awaits has the prime wait for its plugin.
func awaits(p *corev1.PersistentVolumeClaim) {
	p.Finalizers = []string{"kubernetes.io/pvc-protection", v1alpha1.FinalizerPlugin}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationPopulator, "hello")
}

// filling says that the plugin was asked to fill.
func filling(st *v1alpha1.PopulationStatus) {
	recorded(1)(st)
	said(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted)(st)
	st.Fill = &v1alpha1.PluginFill{
		ID: "prime", Populator: "hello", PopulatorGeneration: 2,
		ReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StartedAt: ptr.To(at(time.Minute)),
	}
}

// filled says that the plugin's success is recorded.
func filled(st *v1alpha1.PopulationStatus) {
	filling(st)
	said(v1alpha1.PhaseBinding, v1alpha1.ReasonBinding)(st)
	st.Result = &v1alpha1.Result{Attempt: 1, Succeeded: true}
}

func TestNextPluginIsAsked(t *testing.T) {
	const judged = "source/7"
	away := func(o *populate.Observed) {
		o.Populator.Generation, o.Populator.Status.Conditions = 2, []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPluginUnavailable, Message: "No answer", ObservedGeneration: 2,
		}}
	}
	bound := []func(*populate.Observed){live, plugin(v1alpha1.PluginComputesWorker), population(1), prime(primeBound), volume()}
	begun := func(more ...func(*populate.Observed)) populate.Observed {
		return observed(append(bound[:5:5], more...)...)
	}
	run(t, map[string]nextCase{
		"Away": {
			reason: "A claim of a plugin that is away waits, and nothing is begun",
			o:      observed(live, plugin(v1alpha1.PluginFills), away),
			want:   outline{Step: "create Population at 0", Why: populate.WhyWaiting},
		},
		"NotAskedYet": {
			reason: "A plugin that has not said what it can do is waited for",
			o:      observed(live, plugin(), func(o *populate.Observed) { o.Populator.Status.Plugin = nil }),
			want:   outline{Step: "create Population at 0", Why: populate.WhyWaiting},
		},
		"Validate": {
			reason: "The source is judged before anything is made",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginValidatesSource)),
			want:   outline{Step: "ValidateSource of hello about " + judged, Why: populate.WhyAskValid},
		},
		"ValidatePending": {
			reason: "A call under way is waited for",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginValidatesSource), answered(populate.CallValidate, judged, pending)),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyAskValid},
		},
		"ValidateOlder": {
			reason: "What was said of an older generation says nothing",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginValidatesSource), answered(populate.CallValidate, "source/6")),
			want:   outline{Step: "ValidateSource of hello about " + judged, Why: populate.WhyAskValid},
		},
		"Invalid": {
			reason: "An invalid source is waited for until it is changed",
			o: observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginValidatesSource),
				answered(populate.CallValidate, judged, func(a *populate.Answer) { a.Invalid = "spec.a must be b" })),
			want: outline{Step: "create Population at 0", Why: populate.WhyWaiting},
		},
		"Valid": {
			reason: "A valid one is filled from",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginValidatesSource), answered(populate.CallValidate, judged)),
			want:   outline{Step: "create Population at 1", Why: populate.WhyCreatePopulation},
		},
		"Mutate": {
			reason: "The plugin is asked what the prime is to carry",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginMutatesPrime), population(1)),
			want:   outline{Step: "MutatePrime of hello about " + name1, Why: populate.WhyAskPrime},
		},
		"MutateRefused": {
			reason: "A plugin that asks for what it may not have fails the attempt",
			o: observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginMutatesPrime), population(1),
				answered(populate.CallMutate, name1, failure(v1alpha1.ReasonPluginFailed, true))),
			want: outline{Step: "status Failed PluginFailed", Event: "Warning PluginFailed", Why: populate.WhyPluginFailed},
		},
		"Mutated": {
			reason: "Then the prime is made",
			o:      observed(live, plugin(v1alpha1.PluginFills, v1alpha1.PluginMutatesPrime), population(1), answered(populate.CallMutate, name1)),
			want:   outline{Step: "create prime " + name1, Why: populate.WhyCreatePrime},
		},
		"Compute": {
			reason: "The worker is computed when its volume is known",
			o:      begun(),
			want:   outline{Step: "ComputeWorker of hello about " + name1 + "/pv", Why: populate.WhyAskWorker},
		},
		"ComputeSilent": {
			reason: "While the plugin is silent the claim waits, and is told so",
			o:      begun(answered(populate.CallCompute, name1+"/pv", silent(v1alpha1.ReasonPluginUnavailable, time.Second))),
			want:   outline{Step: "status Waiting PluginUnavailable", Event: "Warning PluginUnavailable", Again: 9 * time.Second, Why: populate.WhyAskWorker},
		},
		"ComputeBusy": {
			reason: "A plugin with enough to do is no warning",
			o:      begun(answered(populate.CallCompute, name1+"/pv", silent(v1alpha1.ReasonWaitingForSlot, time.Second))),
			want:   outline{Step: "status Waiting WaitingForSlot", Event: "Normal WaitingForSlot", Again: 9 * time.Second, Why: populate.WhyAskWorker},
		},
		"ComputeAgain": {
			reason: "A call without an answer is repeated",
			o:      toldAlready(t, begun(answered(populate.CallCompute, name1+"/pv", silent(v1alpha1.ReasonPluginUnavailable, time.Minute)))),
			want:   outline{Step: "ComputeWorker of hello about " + name1 + "/pv", Why: populate.WhyAskWorker},
		},
		"ComputeFailed": {
			reason: "A plugin that has no worker fails the attempt",
			o:      begun(answered(populate.CallCompute, name1+"/pv", failure(v1alpha1.ReasonVolumeTooSmall, true))),
			want:   outline{Step: "status Failed VolumeTooSmall", Event: "Warning VolumeTooSmall", Why: populate.WhyPluginFailed},
		},
		"Computed": {
			reason: "What was computed is rendered",
			o:      begun(answered(populate.CallCompute, name1+"/pv", func(a *populate.Answer) { a.Worker = &v1alpha1.WorkerTemplate{} })),
			want:   outline{Need: populate.NeedRender, Why: populate.WhyCreateWorker},
		},
	})
}

func TestNextFill(t *testing.T) {
	fills := plugin(v1alpha1.PluginFills)
	held := prime(primeBound, awaits)
	running := func(more ...func(*populate.Observed)) populate.Observed {
		return observed(append([]func(*populate.Observed){live, fills, population(1, filling), held, volume()}, more...)...)
	}
	status := func(change ...func(*populate.Answer)) func(*populate.Observed) {
		return answered(populate.CallStatus, "prime", append([]func(*populate.Answer){func(a *populate.Answer) { a.RetryAfter = 5 * time.Second }}, change...)...)
	}
	started := func(change ...func(*populate.Answer)) func(*populate.Observed) {
		return answered(populate.CallStart, "prime", change...)
	}
	deadline := func(o *populate.Observed) { o.Populator.Spec.DeadlineSeconds = ptr.To[int64](30) }
	run(t, map[string]nextCase{
		"StartCached": {
			reason: "That a fill may begin is recorded on a live observation only",
			o:      observed(fills, population(1), held, volume()),
			want:   outline{Need: populate.NeedLive, Why: populate.WhyStartFill},
		},
		"Start": {
			reason: "The record comes before the call",
			o:      observed(live, fills, population(1), held, volume()),
			want:   outline{Step: "record fill prime, StartFill of hello about prime", Why: populate.WhyStartFill},
		},
		"PrimeOfAnotherWay": {
			reason: "A prime that was made for a worker would not wait for the plugin",
			o:      observed(live, fills, population(1), prime(primeBound), volume()),
			want:   outline{Step: "status Waiting PluginFailed", Event: "Warning PluginFailed", Why: populate.WhyOtherWay},
		},
		"Nothing known": {
			reason: "A manager that knows of no answer asks how far the fill is, and starts nothing",
			o:      running(),
			want:   outline{Step: "GetFill of hello about prime", Why: populate.WhyFillRunning},
		},
		"StartNotSent": {
			reason: "A start that certainly began nothing is repeated",
			o:      toldAlready(t, running(started(silent(v1alpha1.ReasonPluginUnavailable, time.Minute)))),
			want:   outline{Step: "StartFill of hello about prime", Why: populate.WhyFillRunning},
		},
		"StartInDoubt": {
			reason: "After one that may have begun something the plugin is asked",
			o:      toldAlready(t, running(started(silent(v1alpha1.ReasonPluginUnavailable, time.Minute), func(a *populate.Answer) { a.Doubtful = true }))),
			want:   outline{Step: "GetFill of hello about prime", Why: populate.WhyFillRunning},
		},
		"Runs": {
			reason: "A fill that runs is asked about when it said",
			o:      running(status(func(a *populate.Answer) { a.At = now.Add(-6 * time.Second) })),
			want:   outline{Step: "GetFill of hello about prime", Why: populate.WhyFillRunning},
		},
		"Silent": {
			reason: "A plugin that says nothing of its fill is told of, and no attempt is lost",
			o:      running(status(silent(v1alpha1.ReasonPluginUnavailable, time.Second))),
			want:   outline{Step: "status Populating PluginUnavailable", Event: "Warning PluginUnavailable", Again: 9 * time.Second, Why: populate.WhyFillRunning},
		},
		"Unknown": {
			reason: "A fill that the plugin does not know is lost",
			o:      running(status(func(a *populate.Answer) { a.Unknown = true })),
			want:   outline{Step: "status Waiting VolumeLost", Event: "Normal VolumeLost", Why: populate.WhyLost},
		},
		"Failed": {
			reason: "A fill that failed is tried again",
			o:      running(status(failure(v1alpha1.ReasonTruncated, false))),
			want:   outline{Step: "status Waiting Truncated", Event: "Warning Truncated", Why: populate.WhyPluginFailed},
		},
		"FailedForGood": {
			reason: "Unless that cannot help",
			o:      running(status(failure(v1alpha1.ReasonSourceMissing, true))),
			want:   outline{Step: "status Failed SourceMissing", Event: "Warning SourceMissing", Why: populate.WhyPluginFailed},
		},
		"Overdue": {
			reason: "A fill has the Populator's deadline",
			o:      running(deadline, status()),
			want:   outline{Step: "status Waiting WorkerTimedOut", Event: "Warning WorkerTimedOut", Why: populate.WhyOverdue},
		},
		"DoneAtTheDeadline": {
			reason: "Success that is known already counts",
			o:      running(deadline, status(func(a *populate.Answer) { a.State = populate.FillSucceeded })),
			want:   outline{Step: "status Binding Binding", Why: populate.WhyFilled},
		},
		"VolumeReleased": {
			reason: "Success on a volume that was released counts for nothing",
			o:      observed(live, fills, population(1, filling), held, volume(released), status(func(a *populate.Answer) { a.State = populate.FillSucceeded })),
			want:   outline{Step: "status Waiting VolumeLost", Event: "Normal VolumeLost", Why: populate.WhyLost},
		},
		"PrimeRemovedByForce": {
			reason: "Nothing holds the plugin back any more but this call",
			o:      observed(live, fills, population(1, filling), volume(released)),
			want:   outline{Step: "CleanupFill of hello about prime", Why: populate.WhyFillLost},
		},
		"PrimeRemovedAndCleaned": {
			reason: "Then the attempt is over",
			o:      observed(live, fills, population(1, filling), volume(released), answered(populate.CallCleanup, "prime", func(a *populate.Answer) { a.Done = true })),
			want:   outline{Step: "status Waiting VolumeLost", Event: "Normal VolumeLost", Why: populate.WhyLost},
		},
		"Filled": {
			reason: "The recorded success hands the volume over, and the prime stays",
			o:      observed(live, fills, population(1, filled), held, volume()),
			want:   outline{Step: "rebind volume at 40 to 0b7e", Why: populate.WhyHandOverRebind},
		},
		"Bound": {
			reason: "A claim that is bound is told so before the prime goes",
			o:      observed(live, fills, population(1, filled), claimBoundTo("pv"), held, volume(handedOver)),
			want:   outline{Step: "status Succeeded Populated", Event: "Normal Populated", Why: populate.WhySucceeded},
		},
	})
}

func TestNextDeletedPrimeWaitsForItsPlugin(t *testing.T) {
	going := func(ago time.Duration) func(*populate.Observed) {
		return prime(primeBound, awaits, func(p *corev1.PersistentVolumeClaim) { p.DeletionTimestamp = ptr.To(at(ago)) })
	}
	claimGone := func(o *populate.Observed) {
		o.Claim, o.Population, o.Populator, o.Class, o.Source = nil, nil, nil, nil, populate.Source{}
	}
	cleanup := func(change ...func(*populate.Answer)) func(*populate.Observed) {
		return answered(populate.CallCleanup, "prime", change...)
	}
	const free = `release prime prime at 30, finalizers ["kubernetes.io/pvc-protection"]`
	run(t, map[string]nextCase{
		"ClaimGone": {
			reason: "What is on the prime is enough to have its plugin end, when all else is gone",
			o:      observed(live, claimGone, going(time.Second), volume()),
			want:   outline{Step: "CleanupFill of hello about prime", Why: populate.WhyCleanup},
		},
		"HandedOver": {
			reason: "The plugin is told that the volume is in use",
			o:      observed(live, population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), claimBoundTo("pv"), going(time.Second), volume(handedOver)),
			want:   outline{Step: "CleanupFill of hello about prime, handed over", Why: populate.WhyCleanup},
		},
		"NotDone": {
			reason: "A plugin that is not done is asked again",
			o:      observed(live, claimGone, going(time.Second), volume(), cleanup(func(a *populate.Answer) { a.RetryAfter, a.At = time.Second, now.Add(-2*time.Second) })),
			want:   outline{Step: "CleanupFill of hello about prime", Why: populate.WhyCleanup},
		},
		"Done": {
			reason: "Then the prime goes, as far as the plugin is concerned",
			o:      observed(live, claimGone, going(time.Second), volume(), cleanup(func(a *populate.Answer) { a.Done = true })),
			want:   outline{Step: free, Why: populate.WhyGone},
		},
		"Refused": {
			reason: "A plugin that will never clean up is not waited for",
			o:      observed(live, claimGone, going(time.Second), volume(), cleanup(failure(v1alpha1.ReasonPluginFailed, false))),
			want:   outline{Step: free, Why: populate.WhyGone},
		},
		"Silent": {
			reason: "One that says nothing is waited for",
			o:      observed(live, claimGone, going(time.Minute), volume(), cleanup(silent(v1alpha1.ReasonPluginUnavailable, time.Second))),
			want:   outline{Again: 9 * time.Second, Why: populate.WhyCleanup},
		},
		"SilentForTooLong": {
			reason: "But not for ever: namespaces have to go",
			o:      observed(live, claimGone, going(11*time.Minute), volume(), cleanup(silent(v1alpha1.ReasonPluginUnavailable, time.Second))),
			want:   outline{Step: free, Event: "Warning PluginUnavailable", Why: populate.WhyGiveUp},
		},
	})
}

// toldAlready is an observation after what its decision told was written.
func toldAlready(t *testing.T, o populate.Observed) populate.Observed {
	t.Helper()
	d := populate.Next(o)
	tells, ok := d.Step.(populate.WriteStatus)
	if !ok {
		t.Fatalf("decision is %+v, want something to be told", outlineOf(d))
	}
	o.Population = o.Population.DeepCopy()
	o.Population.Status = tells.Status
	return o
}
