// Package metrics is everything that the manager counts. Names, labels and what
// they mean stand in docs/metrics.md; the chart's alerts and dashboard are built
// on them.
//
// What happened is counted where it happens, in this file. Where claims are now
// is no sum of what happened: a Collector looks at the Populations whenever it
// is asked, so that no crash, deletion or change of leader leaves a figure
// behind.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Labels.
const (
	// labelKind is the kind of the source, as Kind.group.
	labelKind = "source_kind"
	// labelReason is one of the API's reasons.
	labelReason = "reason"
	// labelResult is how something ended.
	labelResult = "result"
	// labelPhase is a phase of a Population.
	labelPhase = "phase"
)

// Values of labelResult.
const (
	succeeded = "succeeded"
	failed    = "failed"
)

var (
	populations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_populations_total",
		Help: "Populations that ended, by source kind, result (succeeded or failed) and reason.",
	}, []string{labelKind, labelResult, labelReason})

	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_population_duration_seconds",
		Help:    "Time from the first attempt's worker to the claim being bound to its filled volume, by source kind.",
		Buckets: prometheus.ExponentialBuckets(0.5, 2, 16),
	}, []string{labelKind})

	bytes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_population_bytes_total",
		Help: "Bytes that workers reported to have written in populations that succeeded, by source kind.",
	}, []string{labelKind})

	retries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_population_retries_total",
		Help: "Attempts after the first one of a claim, by source kind.",
	}, []string{labelKind})

	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_population_attempt_failures_total",
		Help: "Attempts that failed, by source kind and reason.",
	}, []string{labelKind, labelReason})

	logReads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_progress_reads_total",
		Help: "Reads of workers' logs for their progress, by result (succeeded or failed).",
	}, []string{labelResult})
)

func init() {
	metrics.Registry.MustRegister(populations, duration, bytes, retries, failures, logReads)
}

// StatusWritten counts what a written status says that the one before did not:
// an attempt that failed, a population that ended.
func StatusWritten(before, after v1alpha1.PopulationStatus) {
	kind := kindOf(after.Source)
	if r := after.Result; r != nil && !r.Succeeded && (before.Result == nil || before.Result.Attempt != r.Attempt) {
		failures.WithLabelValues(kind, r.Reason).Inc()
	}
	if before.Phase == after.Phase {
		return
	}
	switch after.Phase {
	case v1alpha1.PhaseSucceeded:
		populations.WithLabelValues(kind, succeeded, reasonOf(after)).Inc()
		if after.StartedAt != nil && after.CompletedAt != nil {
			duration.WithLabelValues(kind).Observe(max(0, after.CompletedAt.Sub(after.StartedAt.Time).Seconds()))
		}
		if after.Progress != nil {
			bytes.WithLabelValues(kind).Add(float64(after.Progress.Bytes))
		}
	case v1alpha1.PhaseFailed:
		populations.WithLabelValues(kind, failed, reasonOf(after)).Inc()
	case v1alpha1.PhaseWaiting, v1alpha1.PhaseProvisioning, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding:
	}
}

// Retried counts an attempt after the first one.
func Retried(source schema.GroupKind) { retries.WithLabelValues(source.String()).Inc() }

// LogRead counts a read of a worker's log.
func LogRead(err error) {
	result := succeeded
	if err != nil {
		result = failed
	}
	logReads.WithLabelValues(result).Inc()
}

// reasonOf is the one word for where a claim is.
func reasonOf(s v1alpha1.PopulationStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// kindOf is the kind of a recorded source, as a label.
func kindOf(s *v1alpha1.SourceRevision) string {
	if s == nil {
		return ""
	}
	return schema.GroupKind{Group: s.Group, Kind: s.Kind}.String()
}
