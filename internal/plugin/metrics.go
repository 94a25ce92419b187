package plugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

var (
	callsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_plugin_calls_total",
		Help: "Calls of plugins that ended, by Populator, call and gRPC code.",
	}, []string{"populator", "call", "code"})

	callDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_plugin_call_duration_seconds",
		Help:    "Time that plugins took to answer, by Populator and call.",
		Buckets: prometheus.ExponentialBuckets(0.002, 4, 8),
	}, []string{"populator", "call"})

	waitingCalls = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_plugin_calls_waiting",
		Help: "Calls of plugins that wait for their turn, by Populator.",
	}, []string{"populator"})
)

func init() { metrics.Registry.MustRegister(callsTotal, callDuration, waitingCalls) }

func observeCall(populator string, call populate.Call, err error, took time.Duration) {
	callsTotal.WithLabelValues(populator, string(call), status.Code(err).String()).Inc()
	callDuration.WithLabelValues(populator, string(call)).Observe(took.Seconds())
}
