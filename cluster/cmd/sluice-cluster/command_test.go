package main

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
)

func TestParseGates(t *testing.T) {
	got, err := parseGates(map[string]string{"A": "true", "B": "false"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"A": true, "B": false}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := parseGates(map[string]string{"A": "yes"}); err == nil {
		t.Error("yes: got no error, want that it must be true or false")
	}
}

func TestDescribe(t *testing.T) {
	layout := config.Layout{Dir: "/clusters/a"}
	cases := map[string]struct {
		reason string
		known  lifecycle.Known
		want   string
	}{
		"starting": {
			reason: "it has told nothing yet",
			known:  lifecycle.Known{Layout: layout, Running: true},
			want:   "Starting",
		},
		"ready": {
			reason: "says how to use it",
			known:  lifecycle.Known{Layout: layout, Running: true, Status: config.Status{Phase: config.PhaseReady}},
			want:   "Ready, kubeconfig /clusters/a/kubeconfig",
		},
		"of a test": {
			reason: "nobody should wonder why down leaves it",
			known:  lifecycle.Known{Layout: layout, Running: true, Attached: true, Status: config.Status{Phase: config.PhaseReady}},
			want:   "Ready, belongs to a running test or demo",
		},
		"failed": {
			reason: "the first line of the reason, and where to read on",
			known: lifecycle.Known{Layout: layout, Status: config.Status{
				Phase: config.PhaseFailed, Reason: "etcd died: signal: killed\nlog\nlog",
			}},
			want: "Failed: etcd died: signal: killed (logs in /clusters/a/logs)",
		},
		"killed": {
			reason: "it could not say anything",
			known:  lifecycle.Known{Layout: layout, Status: config.Status{Phase: config.PhaseReady}},
			want:   "Dead: `sluice-cluster down` removes what it left",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := describe(tc.known); got != tc.want {
				t.Errorf("got %q, want %q (%s)", got, tc.want, tc.reason)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	if got := exitCode(nil); got != 0 {
		t.Errorf("success: got %d", got)
	}
	if got := exitCode(errors.New("no cluster")); got != 1 {
		t.Errorf("failure: got %d, want 1", got)
	}
	kubectl := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit 42").Run()
	if got := exitCode(kubectl); got != 42 {
		t.Errorf("kubectl failed: got %d, want its own code", got)
	}
}
