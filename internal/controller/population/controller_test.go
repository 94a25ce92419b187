package population

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/apply"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

var (
	key     = observe.Key{Namespace: "ns", Name: "claim", UID: "u"}
	errLost = errors.New("connection lost")
)

// script is an observer, a planner, an applier and a teller that do as told,
// and note what they were asked.
type script struct {
	noted    int
	observed populate.Observed
	pending  bool
	out      bool
	err      error
	// decisions are taken in order; the last one stays.
	decisions []populate.Decision
	// outcomes answer the steps in order; the last one stays.
	outcomes []apply.Outcome
	applyErr error

	seen  []populate.Observed
	deeps []populate.Need
	steps []populate.Step
	told  []string
}

func (s *script) Observe(context.Context, observe.Key) (populate.Observed, bool, error) {
	return s.observed, s.pending, s.err
}

func (s *script) Deepen(_ context.Context, o populate.Observed, need populate.Need) (populate.Observed, error) {
	s.deeps = append(s.deeps, need)
	o.Live = o.Live || need&populate.NeedLive != 0
	return o, nil
}

func (s *script) next(o populate.Observed) populate.Decision {
	s.seen = append(s.seen, o)
	d := s.decisions[0]
	if len(s.decisions) > 1 {
		s.decisions = s.decisions[1:]
	}
	return d
}

func (s *script) Apply(_ context.Context, step populate.Step) (apply.Outcome, error) {
	s.steps = append(s.steps, step)
	var out apply.Outcome
	if len(s.outcomes) > 0 {
		out = s.outcomes[0]
		if len(s.outcomes) > 1 {
			s.outcomes = s.outcomes[1:]
		}
	}
	return out, s.applyErr
}

func (s *script) Tell(claim *corev1.PersistentVolumeClaim, e populate.Event) {
	s.told = append(s.told, claim.Name+": "+e.Reason)
}

func (s *script) Out(context.Context, string) (bool, error) { return s.out, nil }

func (s *script) Ask(context.Context, populate.Observed) (slots.Verdict, error) {
	return slots.Verdict{Granted: true}, nil
}

func (s *script) Note(populate.Observed) { s.noted++ }

// silent are plugins that have answered nothing.
type silent struct{}

func (silent) Answers(types.UID) []populate.Answer { return nil }
func (silent) Forget(types.UID)                    {}

func (s *script) controller() (*Controller, *observe.Memory) {
	now := func() time.Time { return time.Unix(1000, 0) }
	memory := observe.NewMemory(now, func(client.Object) string { return "" })
	c := New(s, s, s, s, s, memory, silent{}, now)
	c.next = s.next
	if s.observed.ClaimUID == "" {
		s.observed = populate.Observed{
			Namespace: "ns", Name: "claim", ClaimUID: "u",
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}},
		}
	}
	return c, memory
}

func population(version string) *v1alpha1.Population {
	return &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", ResourceVersion: version}}
}

func TestStepsAreTakenOneAfterAnother(t *testing.T) {
	s := &script{
		decisions: []populate.Decision{
			{Step: populate.CreatePopulation{Population: population("")}},
			{Need: populate.NeedLive},
			{Step: populate.Allocate{To: 1}},
			{RequeueAfter: time.Minute},
		},
		outcomes: []apply.Outcome{{Objects: []client.Object{population("1")}}, {Objects: []client.Object{population("2")}}},
	}
	c, _ := s.controller()
	result, err := c.Reconcile(t.Context(), key)
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("result is %+v, %v; want the planner's time", result, err)
	}
	if len(s.steps) != 2 || len(s.deeps) != 1 {
		t.Errorf("took %d steps and %d deeper looks, want 2 and 1", len(s.steps), len(s.deeps))
	}
	last := s.seen[len(s.seen)-1]
	if last.Population == nil || last.Population.ResourceVersion != "2" || !last.Live {
		t.Errorf("the last decision was taken on %+v, want what was written before", last)
	}
}

func TestNothingIsWrittenOnHalfAnObservation(t *testing.T) {
	cases := map[string]struct {
		script  script
		wantErr error
	}{
		"the observation failed": {script: script{err: errLost}, wantErr: errLost},
		"something is loading":   {script: script{pending: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, _ := tc.script.controller()
			_, err := c.Reconcile(t.Context(), key)
			if !errors.Is(err, tc.wantErr) || len(tc.script.steps) > 0 || len(tc.script.seen) > 0 {
				t.Errorf("error is %v, %d steps were taken", err, len(tc.script.steps))
			}
		})
	}
}

func TestPlannerThatAsksTwice(t *testing.T) {
	s := &script{decisions: []populate.Decision{{Need: populate.NeedLive}}}
	c, _ := s.controller()
	if _, err := c.Reconcile(t.Context(), key); err == nil || len(s.deeps) != 1 {
		t.Errorf("error is %v after %d deeper looks, want one after one", err, len(s.deeps))
	}
}

func TestStaleStepIsRepeatedOnANewObservation(t *testing.T) {
	s := &script{decisions: []populate.Decision{{Step: populate.Allocate{To: 1}, Event: &populate.Event{Reason: "Told"}}}, outcomes: []apply.Outcome{{Stale: true}}}
	c, _ := s.controller()
	result, err := c.Reconcile(t.Context(), key)
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Errorf("result is %+v, %v; want a look soon, and no error", result, err)
	}
	if len(s.steps) != 1 || len(s.told) != 0 {
		t.Errorf("took %d steps and told %q, want one and nothing", len(s.steps), s.told)
	}
}

func TestRefusalReachesThePlanner(t *testing.T) {
	s := &script{
		decisions: []populate.Decision{{Step: populate.CreatePrime{Prime: &corev1.PersistentVolumeClaim{}}}, {Step: populate.WriteStatus{}}, {}},
		outcomes:  []apply.Outcome{{Refused: &populate.Refusal{Reason: "QuotaExceeded"}}, {Objects: []client.Object{population("2")}}},
	}
	c, memory := s.controller()
	if _, err := c.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	got := s.seen[len(s.seen)-1].Refused
	if diff := cmp.Diff(populate.Refusal{Reason: "QuotaExceeded", At: time.Unix(1000, 0), Step: populate.Kind(populate.CreatePrime{})}, got); diff != "" {
		t.Errorf("the last decision saw (-want +got):\n%s", diff)
	}
	if len(memory.RefusedClaims()) != 1 {
		t.Error("writing down why a claim waits made the reason be forgotten")
	}

	s = &script{decisions: []populate.Decision{{Step: populate.CreatePrime{Prime: &corev1.PersistentVolumeClaim{}}}, {}}}
	c, memory = s.controller()
	memory.Refused("u", populate.Refusal{Reason: "QuotaExceeded"})
	if _, err := c.Reconcile(t.Context(), key); err != nil || len(memory.RefusedClaims()) != 0 {
		t.Errorf("error is %v; want the refusal forgotten once the write succeeded", err)
	}
}

func TestRefusalOutlastsAnError(t *testing.T) {
	createWorker := populate.CreateWorker{Worker: &corev1.Pod{}}
	cases := map[string]struct {
		reason string
		step   populate.Step
		out    apply.Outcome
		want   int
	}{
		"another step": {
			reason: "it says nothing about the worker",
			step:   populate.SetFinalizer{}, want: 1,
		},
		"the worker's record": {
			reason: "without its record, the worker was not asked for",
			step:   createWorker, want: 1,
		},
		"the worker": {
			reason: "it may exist: that it was refused before must not pass for a proof that it never did",
			step:   createWorker, out: apply.Outcome{Objects: []client.Object{population("2")}}, want: 0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &script{decisions: []populate.Decision{{Step: tc.step}}, outcomes: []apply.Outcome{tc.out}, applyErr: errLost}
			c, memory := s.controller()
			memory.Refused("u", populate.Refusal{Reason: "QuotaExceeded", Step: populate.Kind(createWorker)})
			if _, err := c.Reconcile(t.Context(), key); !errors.Is(err, errLost) {
				t.Errorf("error is %v, want the writer's", err)
			}
			if got := len(memory.RefusedClaims()); got != tc.want {
				t.Errorf("%s: %d refusals are remembered, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestWhatWasWrittenBesideAnErrorIsKept(t *testing.T) {
	s := &script{
		decisions: []populate.Decision{{Step: populate.CreateWorker{Worker: &corev1.Pod{}}}},
		outcomes:  []apply.Outcome{{Objects: []client.Object{population("2")}}},
		applyErr:  errLost,
	}
	c, memory := s.controller()
	if _, err := c.Reconcile(t.Context(), key); !errors.Is(err, errLost) {
		t.Errorf("error is %v, want the writer's", err)
	}
	if memory.Len() != 1 {
		t.Error("the record that was written before the error is forgotten")
	}
}

func TestEventsAreToldOnceTheStepIsTaken(t *testing.T) {
	s := &script{
		decisions: []populate.Decision{{Step: populate.WriteStatus{}, Event: &populate.Event{Reason: "Populated"}}, {}},
		outcomes:  []apply.Outcome{{Objects: []client.Object{population("2")}}},
	}
	c, _ := s.controller()
	if _, err := c.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"claim: Populated"}, s.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}

	s = &script{decisions: []populate.Decision{{Step: populate.WriteStatus{}, Event: &populate.Event{Reason: "Populated"}}, {}}}
	c, _ = s.controller()
	other := s.observed.Claim.DeepCopy()
	other.UID = "another"
	s.observed.Claim = other
	if _, err := c.Reconcile(t.Context(), key); err != nil || len(s.told) != 0 {
		t.Errorf("error is %v, told %q; another claim of the name is none of our business", err, s.told)
	}
}

func TestRefusalOfTheRecordIsToldOnce(t *testing.T) {
	refused := &populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, Message: "exceeded quota"}
	s := &script{outcomes: []apply.Outcome{{Refused: refused}}}
	c, memory := s.controller()
	claim := s.observed
	claim.Live, claim.Now = true, c.now()
	again := populate.Decision{Step: populate.CreatePopulation{Population: population("")}}
	for range 3 {
		memory.Retry(key.UID) // there may be room, and then there is none
		// As the planner does: refused, told unless it was, and tried again.
		s.decisions = []populate.Decision{again, {}}
		if _, err := c.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		last := s.seen[len(s.seen)-1].Refused
		if last.Reason != v1alpha1.ReasonQuotaExceeded {
			t.Fatalf("refusal is %+v", last)
		}
		if !last.Told {
			s.decisions = []populate.Decision{{Event: &populate.Event{Reason: last.Reason}}}
			s.observed.Refused = last
			if _, err := c.Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"claim: QuotaExceeded"}, s.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if !memory.Retry(key.UID) {
		t.Error("the refusal was forgotten, so a quota that grows wakes nobody")
	}
}

func TestNamespaceToKeepOutOf(t *testing.T) {
	s := &script{out: true, decisions: []populate.Decision{{Step: populate.Allocate{To: 1}}, {}}}
	c, _ := s.controller()
	if _, err := c.Reconcile(t.Context(), key); err != nil || len(s.steps) != 0 {
		t.Errorf("error is %v, took %d steps in a namespace to keep out of", err, len(s.steps))
	}
	s.observed.Claim = nil
	if _, err := c.Reconcile(t.Context(), key); err != nil || len(s.steps) != 1 {
		t.Errorf("error is %v, took %d steps for a claim that is gone, want it cleaned up after", err, len(s.steps))
	}
}

func TestReconcileIsBounded(t *testing.T) {
	s := &script{decisions: []populate.Decision{{Step: populate.Allocate{To: 1}}}}
	c, _ := s.controller()
	result, err := c.Reconcile(t.Context(), key)
	if err != nil || result.RequeueAfter == 0 || len(s.steps) != maxSteps {
		t.Errorf("result is %+v, %v after %d steps", result, err, len(s.steps))
	}
}

func TestSettledClaimIsForgotten(t *testing.T) {
	s := &script{decisions: []populate.Decision{{}}}
	c, memory := s.controller()
	memory.Deleted("u", "worker")
	settled := s.observed.Claim.DeepCopy()
	settled.Spec.VolumeName = "pv"
	settled.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	s.observed.Claim = settled
	s.observed.Workers = []corev1.Pod{{}}
	if _, err := c.Reconcile(t.Context(), key); err != nil || memory.Len() != 1 {
		t.Errorf("error is %v, %d claims remembered; what is left of the worker is still to go", err, memory.Len())
	}
	s.observed.Workers = nil
	if _, err := c.Reconcile(t.Context(), key); err != nil || memory.Len() != 0 {
		t.Errorf("error is %v, %d claims remembered, want none", err, memory.Len())
	}
}
