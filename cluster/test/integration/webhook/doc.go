// Package webhook tests the manager's webhooks and what goes with them on the
// real API server: Populators are judged, claims are warned about, and the
// certificates are the manager's own. The chart's objects are installed as they
// are, and the manager runs in the test process under the chart's rights; only
// the webhooks are reached by address instead of by Service.
package webhook
