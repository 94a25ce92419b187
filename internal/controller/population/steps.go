package population

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

var (
	populationsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_populations_total",
		Help: "Populations that ended, by result (succeeded or failed) and reason.",
	}, []string{"result", "reason"})

	populationDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_population_duration_seconds",
		Help:    "Time from the first attempt's begin to the claim being bound to its filled volume.",
		Buckets: prometheus.ExponentialBuckets(0.5, 2, 16),
	})
)

func init() { metrics.Registry.MustRegister(populationsTotal, populationDuration) }

// count counts a status that ends a population.
func count(s v1alpha1.PopulationStatus) {
	reason := ""
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			reason = c.Reason
		}
	}
	switch s.Phase {
	case v1alpha1.PhaseSucceeded:
		populationsTotal.WithLabelValues("succeeded", reason).Inc()
		if s.StartedAt != nil && s.CompletedAt != nil {
			populationDuration.Observe(s.CompletedAt.Sub(s.StartedAt.Time).Seconds())
		}
	case v1alpha1.PhaseFailed:
		populationsTotal.WithLabelValues("failed", reason).Inc()
	case v1alpha1.PhaseWaiting, v1alpha1.PhaseProvisioning, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding:
	}
}

// stepName is the name of a step, for logs.
func stepName(s populate.Step) string {
	name := fmt.Sprintf("%T", s)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// about is what a step writes to, for logs.
func about(s populate.Step) []any {
	switch s := s.(type) {
	case populate.CreatePopulation:
		return []any{"attempt", s.Population.Spec.Attempt}
	case populate.Allocate:
		return []any{"attempt", s.To}
	case populate.CreatePrime:
		return []any{"prime", s.Prime.Name}
	case populate.CreateScout:
		return []any{"scout", s.Scout.Name}
	case populate.CreateWorker:
		return []any{"worker", s.Worker.Name}
	case populate.DeletePrime:
		return []any{"prime", s.Name}
	case populate.DeleteWorker:
		return []any{"worker", s.Name}
	case populate.Rebind:
		return []any{"volume", s.Volume}
	case populate.SetReclaimPolicy:
		return []any{"volume", s.Volume, "policy", s.Policy}
	case populate.LabelVolume:
		return []any{"volume", s.Volume}
	case populate.ReleaseForeign:
		return []any{"volume", s.Volume}
	case populate.WriteStatus:
		return []any{"phase", s.Status.Phase}
	case populate.DeletePopulation, populate.UnselectNode:
	case populate.SetFinalizer:
		return []any{"present", s.Present}
	}
	return nil
}
