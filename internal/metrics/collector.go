package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// patience bounds one look at the caches.
const patience = 5 * time.Second

var (
	claims = prometheus.NewDesc("sluice_claims",
		"Claims with a Population, by phase and source kind.", []string{labelPhase, labelKind}, nil)
	inFlight = prometheus.NewDesc("sluice_populations_in_flight",
		"Claims whose prime or worker exists, or that are being bound: the phases Provisioning, Populating and Binding.", nil, nil)
	waiting = prometheus.NewDesc("sluice_claims_waiting",
		"Claims in phase Waiting, by reason and source kind.", []string{labelReason, labelKind}, nil)
	ended = prometheus.NewDesc("sluice_claims_failed",
		"Claims in phase Failed, for which no further attempt is made, by reason and source kind.", []string{labelReason, labelKind}, nil)
	queue = prometheus.NewDesc("sluice_queue_depth",
		"Claims that wait for nothing but their turn: reason WaitingForSlot.", nil, nil)
	oldest = prometheus.NewDesc("sluice_oldest_waiting_claim_age_seconds",
		"Age of the oldest Population in phase Waiting, by the reason that it has now.", []string{labelReason}, nil)
)

// descriptions are all that a Collector tells.
var descriptions = []*prometheus.Desc{claims, inFlight, waiting, ended, queue, oldest}

// phases are all of them, so that a phase that nothing is in shows 0.
var phases = []v1alpha1.Phase{
	v1alpha1.PhaseWaiting, v1alpha1.PhaseProvisioning, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding,
	v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed,
}

// Collector tells where claims are. Of several replicas only the leader does,
// so that figures may be summed.
type Collector struct {
	cache   client.Reader
	leading <-chan struct{}
	now     func() time.Time
}

// NewCollector returns a Collector that reads from a cache once leading is
// closed.
func NewCollector(cache client.Reader, leading <-chan struct{}, now func() time.Time) *Collector {
	return &Collector{cache: cache, leading: leading, now: now}
}

// Register has the manager's endpoint serve a Collector, in the place of one
// that was registered before.
func Register(c *Collector) error {
	err := metrics.Registry.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		metrics.Registry.Unregister(already.ExistingCollector)
		err = metrics.Registry.Register(c)
	}
	if err != nil {
		return fmt.Errorf("register metrics of claims: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.leading:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := c.count(ctx)
	if err != nil {
		for _, d := range descriptions {
			out <- prometheus.NewInvalidMetric(d, err)
		}
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for at, n := range s.claims {
		gauge(claims, float64(n), string(at.phase), at.kind)
	}
	for why, n := range s.waiting {
		gauge(waiting, float64(n), why.reason, why.kind)
	}
	for why, n := range s.failed {
		gauge(ended, float64(n), why.reason, why.kind)
	}
	for reason, age := range s.oldest {
		gauge(oldest, age.Seconds(), reason)
	}
	gauge(inFlight, float64(s.inFlight))
	gauge(queue, float64(s.queued))
}

type phaseOfKind struct {
	phase v1alpha1.Phase
	kind  string
}

type reasonOfKind struct{ reason, kind string }

// sums are where claims are at one time.
type sums struct {
	claims           map[phaseOfKind]int
	waiting, failed  map[reasonOfKind]int
	oldest           map[string]time.Duration
	inFlight, queued int
}

// count looks at every Population once.
func (c *Collector) count(ctx context.Context) (sums, error) {
	s := sums{
		claims: map[phaseOfKind]int{}, waiting: map[reasonOfKind]int{}, failed: map[reasonOfKind]int{},
		oldest: map[string]time.Duration{},
	}
	var populators v1alpha1.PopulatorList
	if err := c.cache.List(ctx, &populators, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list populators: %w", err)
	}
	for i := range populators.Items {
		kind := schema.GroupKind(populators.Items[i].Spec.SourceKind).String()
		for _, phase := range phases {
			s.claims[phaseOfKind{phase, kind}] = 0
		}
	}
	var list v1alpha1.PopulationList
	if err := c.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list populations: %w", err)
	}
	now := c.now()
	for i := range list.Items {
		p := &list.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		phase, kind := phaseOf(p), c.kindOf(ctx, p)
		s.claims[phaseOfKind{phase, kind}]++
		switch phase {
		case v1alpha1.PhaseProvisioning, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding:
			s.inFlight++
		case v1alpha1.PhaseWaiting:
			reason := reasonOf(p.Status)
			s.waiting[reasonOfKind{reason, kind}]++
			if reason == v1alpha1.ReasonWaitingForSlot {
				s.queued++
			}
			s.oldest[reason] = max(s.oldest[reason], now.Sub(p.CreationTimestamp.Time))
		case v1alpha1.PhaseFailed:
			s.failed[reasonOfKind{reasonOf(p.Status), kind}]++
		case v1alpha1.PhaseSucceeded:
		}
	}
	return s, nil
}

// phaseOf is the phase of a Population. The first seconds of one that goes well
// are not written down: it has an attempt by then, and no phase.
func phaseOf(p *v1alpha1.Population) v1alpha1.Phase {
	switch {
	case p.Status.Phase != "":
		return p.Status.Phase
	case p.Spec.Attempt > 0:
		return v1alpha1.PhaseProvisioning
	}
	return v1alpha1.PhaseWaiting
}

// kindOf is the kind of a Population's source: as it is recorded, or, in its
// first seconds, as the claim says.
func (c *Collector) kindOf(ctx context.Context, p *v1alpha1.Population) string {
	if p.Status.Source != nil {
		return kindOf(p.Status.Source)
	}
	var claim corev1.PersistentVolumeClaim
	if err := c.cache.Get(ctx, client.ObjectKeyFromObject(p), &claim); err != nil || claim.Spec.DataSourceRef == nil {
		return ""
	}
	ref := claim.Spec.DataSourceRef
	return schema.GroupKind{Group: ptr.Deref(ref.APIGroup, ""), Kind: ref.Kind}.String()
}
