package supervisor

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/config"
)

func TestMountsBelow(t *testing.T) {
	if got := mountsBelow(t.TempDir()); len(got) > 0 {
		t.Errorf("new folder: got %v, want none", got)
	}
}

// TestReport shows that steps go to the starter only and what is about the whole
// cluster is kept as well.
func TestReport(t *testing.T) {
	var events bytes.Buffer
	s := &supervisor{layout: config.Layout{Dir: t.TempDir()}, events: &events}
	ready := config.Status{Phase: config.PhaseReady, Since: 5}
	all := []config.Status{{Phase: config.PhaseStarting, Unit: "etcd", Took: 1, Since: 2}, ready}
	for _, status := range all {
		s.report(status)
	}
	var told []config.Status
	for d := json.NewDecoder(&events); d.More(); {
		var status config.Status
		if err := d.Decode(&status); err != nil {
			t.Fatal(err)
		}
		told = append(told, status)
	}
	if diff := cmp.Diff(all, told); diff != "" {
		t.Errorf("told, -want +got:\n%s", diff)
	}
	kept, err := config.Load[config.Status](s.layout.Status())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ready, kept); diff != "" {
		t.Errorf("kept, -want +got:\n%s", diff)
	}
}
