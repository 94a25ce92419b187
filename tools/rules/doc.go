// Package rules checks what the chart gives to Prometheus and Grafana with
// Prometheus' own parser: alert rules as `promtool check rules` does, and every
// query of the dashboard.
//
// It is a module of its own because Prometheus requires versions of modules that
// Kubernetes and the linter require too; neither is to be held back or pushed
// ahead by it.
package rules
