package rules

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// file is one that the chart gives to an operator's tools.
func file(name string) string {
	return filepath.Join("..", "..", "charts", "sluice", "files", "monitoring", name)
}

func TestAlertRules(t *testing.T) {
	groups, errs := rulefmt.ParseFile(file("alerts.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("there are no rules")
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] {
				t.Errorf("alert %q is there twice", r.Alert)
			}
			seen[r.Alert] = true
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks severity, summary or description", r.Alert)
			}
		}
	}
}

func TestDashboardQueries(t *testing.T) {
	text, err := os.ReadFile(file("dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	p := parser.NewParser(parser.Options{})
	each(dashboard, "expr", func(query string) {
		queries++
		// Grafana puts an interval in the place of its variable.
		if _, err := p.ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m")); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	})
	if queries < 10 {
		t.Errorf("only %d queries were found", queries)
	}
}

// each calls f with every string under a key, wherever it is.
func each(value any, key string, f func(string)) {
	switch v := value.(type) {
	case map[string]any:
		for k, item := range v {
			if text, ok := item.(string); ok && k == key {
				f(text)
				continue
			}
			each(item, key, f)
		}
	case []any:
		for _, item := range v {
			each(item, key, f)
		}
	}
}
