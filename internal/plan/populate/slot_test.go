package populate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// full is the answer to a claim that may not be begun yet.
func full(kind slots.Kind, name string) func(*populate.Observed) {
	return func(o *populate.Observed) { o.Slot = &slots.Verdict{Kind: kind, Name: name, Limit: 2, Ahead: 7} }
}

func unasked(o *populate.Observed) { o.Slot = nil }

func young(age time.Duration) func(*populate.Observed) {
	return func(o *populate.Observed) { o.Claim.CreationTimestamp = at(age) }
}

const waitsForTenant = `The claim waits its turn: at most 2 of namespace "tenant" are filled at the same time; 3 were ahead of it when it came`

func waiting(st *v1alpha1.PopulationStatus) {
	st.Phase = v1alpha1.PhaseWaiting
	st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForSlot, Message: waitsForTenant}}
}

func TestSlots(t *testing.T) {
	run(t, map[string]nextCase{
		"asked last": {
			reason: "Slots are asked for when nothing else is in the way, and before anything is read again.",
			o:      observed(unasked),
			want:   outline{Need: populate.NeedSlot, Why: populate.WhySlot},
		},
		"not asked": {
			reason: "A claim that waits for something else takes no slot.",
			o: observed(unasked, func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceNotFound, Namespace: "tenant"}
			}),
			want: outline{Step: "create Population at 0", Why: populate.WhyWaiting},
		},
		"limit": {
			reason: "A claim that waits for its turn gets a record that says so.",
			o:      observed(full(slots.OfNamespace, "tenant")),
			want:   outline{Step: "create Population at 0", Why: populate.WhySlot},
		},
		"told": {
			reason: "It is told once, and is no failure.",
			o:      observed(full(slots.OfNamespace, "tenant"), population(0)),
			want:   outline{Step: "status Waiting WaitingForSlot", Event: "Normal WaitingForSlot", Again: 5 * time.Minute, Why: populate.WhySlot},
		},
		"young": {
			reason: "Its turn may come before there is anything to tell.",
			o:      observed(full(slots.OfAll, ""), young(time.Second)),
			want:   outline{Again: 2 * time.Second, Why: populate.WhySlot},
		},
		"crowd": {
			reason: "A burst is worked off, which is not told claim by claim at once.",
			o:      observed(full(slots.OfMotion, ""), young(5*time.Second)),
			want:   outline{Again: 10 * time.Second, Why: populate.WhySlot},
		},
		"long crowd": {
			reason: "It is told when it takes long.",
			o:      observed(full(slots.OfMotion, ""), young(15*time.Second)),
			want:   outline{Step: "create Population at 0", Why: populate.WhySlot},
		},
		"granted": {
			reason: "With its slots a claim that waited is begun.",
			o:      observed(live, population(0, waiting)),
			want:   outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt},
		},
		"next attempt": {
			reason: "Another attempt waits for its turn like the first.",
			o:      observed(full(slots.OfNamespace, "tenant"), population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Hour))),
			want:   outline{Step: "status Waiting WaitingForSlot", Event: "Normal WaitingForSlot", Again: 5 * time.Minute, Why: populate.WhySlot},
		},
		"begun": {
			reason: "What was begun is not held up by a limit that was lowered.",
			o:      observed(live, full(slots.OfAll, ""), population(1)),
			want:   outline{Step: "create prime " + populate.TemporaryName(uid, 1), Why: populate.WhyCreatePrime},
		},
	})
}

func TestHowManyAreAheadIsToldOnce(t *testing.T) {
	message := func(o populate.Observed) string {
		d := populate.Next(o)
		s, ok := d.Step.(populate.WriteStatus)
		if !ok {
			return ""
		}
		for _, c := range s.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				return c.Message
			}
		}
		return ""
	}
	o := observed(full(slots.OfNamespace, "tenant"), population(0))
	o.Slot.Ahead = 3
	if got := message(o); got != waitsForTenant {
		t.Errorf("message is %q, want %q", got, waitsForTenant)
	}
	d := populate.Next(o)
	o.Population.Status = d.Step.(populate.WriteStatus).Status //nolint:errcheck,forcetypeassert // seen above
	o.Slot.Ahead = 2
	if d := populate.Next(o); d.Step != nil {
		t.Errorf("when fewer are ahead it writes %T, want nothing", d.Step)
	}
	o.Slot = &slots.Verdict{Kind: slots.OfSource, Name: "Hello/tenant/example", Limit: 1}
	if got, want := message(o), `The claim waits its turn: at most 1 of source "Hello/tenant/example" are filled at the same time; 0 were ahead of it when it came`; got != want {
		t.Errorf("when another limit is in the way, message is %q, want %q", got, want)
	}
}

func TestStageOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      populate.Observed
		want   populate.Stage
	}{
		"nothing":         {"A claim that nothing was begun for holds no slot.", observed(), populate.Idle},
		"waits":           {"Nor does one that has only a record.", observed(population(0, waiting)), populate.Idle},
		"allocated":       {"From its token on it does.", observed(population(1)), populate.Moving},
		"prime":           {"Its volume is made.", observed(population(1), prime()), populate.Moving},
		"worker pending":  {"Its worker is started.", observed(population(1, recorded(1)), prime(primeBound), worker()), populate.Moving},
		"worker":          {"Its worker works.", observed(population(1, recorded(1)), prime(primeBound), worker(workerRunning(0))), populate.Working},
		"worker ended":    {"It is handed over.", observed(population(1, recorded(1)), prime(primeBound), worker(workerEnded(0, ""))), populate.Moving},
		"failed":          {"A failed attempt holds none while it backs off.", observed(population(1, failed(1, v1alpha1.ReasonWorkerFailed, 0)), worker(workerEnded(1, ""))), populate.Idle},
		"failed, running": {"But its worker does for as long as it runs.", observed(population(1, failed(1, v1alpha1.ReasonWorkerFailed, 0)), worker(workerRunning(0))), populate.Working},
		"succeeded": {"Nor does one that is done.", observed(population(1, func(st *v1alpha1.PopulationStatus) {
			st.Phase = v1alpha1.PhaseSucceeded
		})), populate.Idle},
		"claim gone": {"The worker of a claim that is gone does, too.", observed(func(o *populate.Observed) { o.Claim = nil }, worker(workerRunning(0))), populate.Working},
		"all gone":   {"Nothing holds nothing.", observed(func(o *populate.Observed) { o.Claim = nil }), populate.Idle},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := populate.StageOf(tc.o); got != tc.want {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestSlotOf(t *testing.T) {
	o := observed(node, worker(func(w *corev1.Pod) { w.Spec.NodeName = "node-2" }))
	o.Populator.Spec.MaxConcurrent = 3
	want := slots.Claim{
		UID: uid, Namespace: "tenant", Name: "data", Created: o.Claim.CreationTimestamp.Time,
		Class: "fast", Node: "node-2", Source: "Hello/tenant/example", Populator: "hello", PopulatorLimit: 3,
	}
	if d := cmp.Diff(want, populate.SlotOf(o, "Hello/tenant/example")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	o.Workers = nil
	if got := populate.SlotOf(o, "").Node; got != "node-1" {
		t.Errorf("before there is a worker, node is %q, want the one that the scheduler chose", got)
	}
}
