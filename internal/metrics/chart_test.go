package metrics

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	// What it registers is part of what the manager serves.
	_ "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var root = filepath.Join("..", "..")

var name = regexp.MustCompile(`\b(?:sluice|workqueue|controller_runtime|leader_election|rest_client|process|go)_[a-z0-9_]+\b`)

// named are the metrics that a text speaks of.
func named(t *testing.T, path ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, n := range name.FindAllString(string(text), -1) {
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			n = strings.TrimSuffix(n, part)
		}
		found[n] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// ours are the names of all metrics of this package.
func ours(t *testing.T) []string {
	t.Helper()
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range []prometheus.Collector{populations, duration, bytes, retries, failures, logReads, collector(t, false)} {
		c.Describe(descs)
	}
	close(descs)
	var names []string
	for d := range descs {
		names = append(names, name.FindString(d.String()))
	}
	return names
}

// TestChartSpeaksOfMetricsThatExist shows that alerts and dashboard ask for
// nothing that the manager does not serve.
func TestChartSpeaksOfMetricsThatExist(t *testing.T) {
	if err := Register(collector(t, false)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		used := named(t, "charts", "sluice", "files", "monitoring", file)
		if len(used) < 3 {
			t.Errorf("%s: only %q were found", file, used)
		}
		for _, n := range used {
			if !registered(n) {
				t.Errorf("%s asks for %s, which the manager does not serve", file, n)
			}
		}
	}
}

// registered says that the manager's registry knows a name: it does not take
// another metric of that name.
func registered(name string) bool {
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "of a test", ConstLabels: prometheus.Labels{"of": "test"}})
	if err := metrics.Registry.Register(other); err != nil {
		return true
	}
	metrics.Registry.Unregister(other)
	return false
}

func TestEveryMetricIsExplainedAndShown(t *testing.T) {
	explained := named(t, "docs", "metrics.md")
	shown := named(t, "charts", "sluice", "files", "monitoring", "dashboard.json")
	for _, n := range ours(t) {
		if !slices.Contains(explained, n) {
			t.Errorf("docs/metrics.md does not explain %s", n)
		}
		if !slices.Contains(shown, n) {
			t.Errorf("the dashboard does not show %s", n)
		}
	}
	for _, n := range explained {
		if strings.HasPrefix(n, "sluice_") && !slices.Contains(ours(t), n) {
			t.Errorf("docs/metrics.md explains %s, which does not exist", n)
		}
	}
}
