package population

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/metrics"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// count counts what a step amounts to.
func count(o populate.Observed, s populate.Step, before v1alpha1.PopulationStatus) {
	switch s := s.(type) {
	case populate.WriteStatus:
		metrics.StatusWritten(before, s.Status)
	case populate.Allocate:
		if source, ok := sourceOf(o); ok && s.To > 1 {
			metrics.Retried(source.Kind)
		}
	default: // nothing that is counted
	}
}

// sourceOf is the source that the claim names.
func sourceOf(o populate.Observed) (observe.SourceRef, bool) {
	if o.Claim == nil {
		return observe.SourceRef{}, false
	}
	return observe.SourceOf(o.Claim)
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
	case populate.StartFill:
		return []any{"fill", s.Start.ID, "populator", s.Start.Populator, "volume", s.Start.Volume}
	case populate.CallPlugin:
		return []any{"call", s.Call, "about", s.ID, "populator", s.Populator}
	case populate.ReleasePrime:
		return []any{"prime", s.Name}
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
