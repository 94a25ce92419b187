package helm_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/cluster/config"
)

// shipped reads what the chart gives to operators' tools.
func shipped(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "charts", "sluice", "files", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// monitoring returns the rendered objects for Prometheus and Grafana, as
// kind/name.
func monitoring(t *testing.T, values map[string]any, apis ...string) map[string]map[string]any {
	t.Helper()
	r := chart(map[string]any{"monitoring": values})
	r.APIVersions = apis
	manifest, err := r.Template(t.Context(), config.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for doc := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		meta, _ := o["metadata"].(map[string]any)
		kind, _ := o["kind"].(string)
		name, _ := meta["name"].(string)
		if name == "sluice-populators" || name == "sluice-plugin-clients" {
			continue // what the manager reads, and what plugins do
		}
		if kind == "ConfigMap" || kind == "PrometheusRule" {
			all[kind+"/"+name] = o
		}
	}
	return all
}

func TestMonitoring(t *testing.T) {
	const operator = "monitoring.coreos.com/v1"
	on := map[string]any{"enabled": true, "labels": map[string]any{"release": "prom"}}
	as := func(kind string) map[string]any { return map[string]any{"enabled": true, "as": kind} }
	cases := map[string]struct {
		reason string
		values map[string]any
		apis   []string
		want   []string
	}{
		"Default":    {reason: "Nothing is installed that nobody asked for", apis: []string{operator}},
		"Operator":   {reason: "A cluster that knows the kind gets it", values: map[string]any{"alerts": on}, apis: []string{operator}, want: []string{"PrometheusRule/sluice"}},
		"NoOperator": {reason: "Another one gets a file", values: map[string]any{"alerts": on}, want: []string{"ConfigMap/sluice-alerts"}},
		"File":       {reason: "Which of the two can be said", values: map[string]any{"alerts": as("ConfigMap")}, apis: []string{operator}, want: []string{"ConfigMap/sluice-alerts"}},
		"Rule":       {reason: "Also where the kind comes later", values: map[string]any{"alerts": as("PrometheusRule")}, want: []string{"PrometheusRule/sluice"}},
		"Dashboard":  {reason: "The dashboard is an option of its own", values: map[string]any{"dashboard": map[string]any{"enabled": true}}, want: []string{"ConfigMap/sluice-dashboard"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := monitoring(t, tc.values, tc.apis...)
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}

	var rules any
	if err := yaml.Unmarshal([]byte(shipped(t, "alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	rule := monitoring(t, map[string]any{"alerts": on}, operator)["PrometheusRule/sluice"]
	if diff := cmp.Diff(rules, rule["spec"]); diff != "" {
		t.Errorf("rules of the PrometheusRule: -want +got\n%s", diff)
	}
	meta, _ := rule["metadata"].(map[string]any)
	if labels, _ := meta["labels"].(map[string]any); labels["release"] != "prom" {
		t.Errorf("labels of the PrometheusRule: %v", labels)
	}
	file, _ := monitoring(t, map[string]any{"alerts": on})["ConfigMap/sluice-alerts"]["data"].(map[string]any)
	if got, _ := file["sluice.yaml"].(string); strings.TrimSpace(got) != strings.TrimSpace(shipped(t, "alerts.yaml")) {
		t.Errorf("the rule file is another than that of the chart:\n%s", got)
	}
	board := monitoring(t, map[string]any{"dashboard": map[string]any{"enabled": true}})["ConfigMap/sluice-dashboard"]
	data, _ := board["data"].(map[string]any)
	if got, _ := data["sluice.json"].(string); strings.TrimSpace(got) != strings.TrimSpace(shipped(t, "dashboard.json")) {
		t.Error("the dashboard is another than that of the chart")
	}
}
