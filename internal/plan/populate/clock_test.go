package populate_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// onTime are situations in which the planner waits for time to pass, or in which
// something is told only after a while.
var onTime = map[string]populate.Observed{
	"YoungClaim": observed(live, func(o *populate.Observed) {
		o.Source = populate.Source{State: populate.SourceNotFound}
		o.Claim.CreationTimestamp = at(0)
	}),
	"PrimePending":  observed(live, population(1), prime()),
	"WorkerPending": observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker()),
	"WorkerRuns":    observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerRunning(0))),
	"Unschedulable": observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(func(w *corev1.Pod) {
		w.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: at(0),
		}}
	})),
	"Binding":      observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(handedOver), worker(workerEnded(0, ""))),
	"BackOff":      observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, 0))),
	"LongBackOff":  observed(live, population(6, failed(6, v1alpha1.ReasonWorkerFailed, 0))),
	"PrimeLingers": observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, 0)), prime(primeDeleting)),
	"FailedWorkerKept": observed(live, population(1, failed(1, v1alpha1.ReasonDigestMismatch, 0), func(st *v1alpha1.PopulationStatus) {
		st.Phase = v1alpha1.PhaseFailed
	}), worker(workerEnded(1, ""))),
	"Refused": observed(live, population(1), func(o *populate.Observed) {
		o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, At: now, Step: populate.Kind(populate.CreatePrime{})}
		said(v1alpha1.PhaseWaiting, v1alpha1.ReasonQuotaExceeded)(&o.Population.Status)
	}),
	"RebindRefused": observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(), worker(workerEnded(0, "")), func(o *populate.Observed) {
		o.Refused = populate.Refusal{Reason: v1alpha1.ReasonRequestRefused, At: now, Step: populate.Kind(populate.Rebind{})}
	}),
	"ScoutGoing": observed(live, waitsForConsumer, immediately, population(1), prime(primeBound), volume(), rendered, scout(podDeleting(0))),
}

// rest is what the planner does after it has waited as long as it asked for, and
// how long that took. It writes what is told meanwhile.
func rest(o populate.Observed) (string, time.Duration) {
	var waited time.Duration
	for range 200 {
		d := populate.Next(o)
		step, tells := d.Step.(populate.WriteStatus)
		switch {
		case tells:
			o.Population = o.Population.DeepCopy()
			o.Population.Status = step.Status
			continue
		case d.Step != nil || d.RequeueAfter == 0 || d.RequeueAfter >= 5*time.Minute && d.Why != populate.WhyKeepWorker && d.Why != populate.WhyBackOff:
			return fmt.Sprintf("%s: %s", d.Why, outlineOf(d).Step), waited
		case d.Why == populate.WhyBinding && d.RequeueAfter == 30*time.Second:
			return d.Why, waited // for Kubernetes, not for the clock
		}
		o.Now = o.Now.Add(d.RequeueAfter)
		waited += d.RequeueAfter
	}
	return "waits for ever", waited
}

// TestClockThatJumps sets the clock, back and forth, in every situation that has
// to do with time: nothing is held up for ever, whatever the clock says.
func TestClockThatJumps(t *testing.T) {
	const enough = 2*time.Hour + 5*time.Minute
	for name, o := range onTime {
		want, took := rest(o)
		if took > time.Hour+time.Minute {
			t.Errorf("%s: takes %s by a good clock", name, took)
		}
		for _, jump := range []time.Duration{
			-20 * 365 * 24 * time.Hour, -24 * time.Hour, -2 * time.Hour, -10 * time.Minute, -30 * time.Second, -4 * time.Second, -time.Second,
			time.Second, 4 * time.Second, 30 * time.Second, 10 * time.Minute, 2 * time.Hour, 24 * time.Hour, 20 * 365 * 24 * time.Hour,
		} {
			jumped := o
			jumped.Now = o.Now.Add(jump)
			got, took := rest(jumped)
			if got != want || took > enough {
				t.Errorf("%s, clock set by %s: got %q after %s, want %q", name, jump, got, took, want)
			}
		}
	}
}

// TestVolumeIsKnownByItsName shows that the clocks of two API servers do not
// make a volume somebody's.
func TestVolumeIsKnownByItsName(t *testing.T) {
	older := func(pv *corev1.PersistentVolume) { pv.CreationTimestamp = at(time.Hour) }
	named := func(pv *corev1.PersistentVolume) { pv.Name = "pvc-prime" }
	boundToNamed := func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeName, p.Status.Phase = "pvc-prime", corev1.ClaimBound
	}
	run(t, map[string]nextCase{
		"NamedAfterThePrime": {
			reason: "Nobody knew the prime's UID before there was the prime",
			o:      observed(live, population(1), prime(boundToNamed), volume(older, named), rendered),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"NamedButMatched": {
			reason: "Kubernetes' own mark says more than a name",
			o:      observed(live, population(1), prime(boundToNamed), volume(older, named, matched), rendered),
			want:   outline{Step: "status Waiting PrimeBoundToForeignVolume", Event: "Warning PrimeBoundToForeignVolume", Why: populate.WhyPrimeForeign},
		},
		"OlderWithAnotherName": {
			reason: "A volume that was there before the prime was not made for it",
			o:      observed(live, population(1), prime(primeBound), volume(older), rendered),
			want:   outline{Step: "status Waiting PrimeBoundToForeignVolume", Event: "Warning PrimeBoundToForeignVolume", Why: populate.WhyPrimeForeign},
		},
	})
}

// FuzzClock shows the planner any observation at any time: it never asks to wait
// longer than its longest wait allows.
func FuzzClock(f *testing.F) {
	for seed := range 32 {
		data := make([]byte, 96)
		for i := range data {
			data[i] = byte((i*131 + seed*97 + i*i*seed) >> 2)
		}
		f.Add(data, int64(seed-16)*int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, data []byte, jump int64) {
		o := arrange(data)
		o.Now = o.Now.Add(time.Duration(jump))
		d := populate.Next(o)
		if d.RequeueAfter < 0 || d.RequeueAfter > 2*time.Hour+time.Minute {
			t.Fatalf("waits %s for %q", d.RequeueAfter, d.Why)
		}
	})
}
