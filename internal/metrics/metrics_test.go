package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// status is one of the kind Hello.demo.
func status(phase v1alpha1.Phase, reason string, changes ...func(*v1alpha1.PopulationStatus)) v1alpha1.PopulationStatus {
	s := v1alpha1.PopulationStatus{
		Phase:      phase,
		Source:     &v1alpha1.SourceRevision{Group: "demo", Kind: "Hello", Name: "h"},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func TestWhatHappenedIsCountedOnce(t *testing.T) {
	at := func(s int64) *metav1.Time { return &metav1.Time{Time: time.Unix(s, 0)} }
	attempt := func(n int32) func(*v1alpha1.PopulationStatus) {
		return func(s *v1alpha1.PopulationStatus) {
			s.Result = &v1alpha1.Result{Attempt: n, Reason: v1alpha1.ReasonTruncated}
		}
	}
	done := func(s *v1alpha1.PopulationStatus) {
		s.StartedAt, s.CompletedAt = at(100), at(107)
		s.Progress = &v1alpha1.Progress{Bytes: 1 << 20}
		s.Result = &v1alpha1.Result{Attempt: 3, Succeeded: true}
	}
	life := []v1alpha1.PopulationStatus{
		{},
		status(v1alpha1.PhaseWaiting, v1alpha1.ReasonSourceNotFound),
		status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulating),
		status(v1alpha1.PhaseWaiting, v1alpha1.ReasonTruncated, attempt(1)),
		status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted, attempt(1)),
		status(v1alpha1.PhaseFailed, v1alpha1.ReasonTruncated, attempt(2)),
		status(v1alpha1.PhaseFailed, v1alpha1.ReasonTruncated, attempt(2)),
		status(v1alpha1.PhasePopulating, v1alpha1.ReasonPopulationStarted, attempt(2)),
		status(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated, done),
		status(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated, done),
	}
	for i := 1; i < len(life); i++ {
		StatusWritten(life[i-1], life[i])
	}
	Retried(schema.GroupKind{Group: "demo", Kind: "Hello"})
	for name, tc := range map[string]struct {
		got  float64
		want float64
	}{
		"failed attempts":       {testutil.ToFloat64(failures.WithLabelValues("Hello.demo", "Truncated")), 2},
		"failed populations":    {testutil.ToFloat64(populations.WithLabelValues("Hello.demo", "failed", "Truncated")), 1},
		"succeeded populations": {testutil.ToFloat64(populations.WithLabelValues("Hello.demo", "succeeded", "Populated")), 1},
		"bytes":                 {testutil.ToFloat64(bytes.WithLabelValues("Hello.demo")), 1 << 20},
		"retries":               {testutil.ToFloat64(retries.WithLabelValues("Hello.demo")), 1},
		"durations":             {float64(testutil.CollectAndCount(duration)), 1},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: counted %v, want %v", name, tc.got, tc.want)
		}
	}
}

// TestNamesKeepTheRules has Prometheus' own linter look at every metric.
func TestNamesKeepTheRules(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(populations, duration, bytes, retries, failures, logReads, collector(t, true))
	for _, c := range []*prometheus.CounterVec{populations, failures} {
		c.Reset()
	}
	populations.WithLabelValues("Hello.demo", succeeded, "Populated")
	failures.WithLabelValues("Hello.demo", "Truncated")
	bytes.WithLabelValues("Hello.demo")
	retries.WithLabelValues("Hello.demo")
	duration.WithLabelValues("Hello.demo")
	LogRead(nil)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
