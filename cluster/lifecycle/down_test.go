package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/config"
)

func TestListOfDeadClusters(t *testing.T) {
	root := t.TempDir()
	if got, err := List(filepath.Join(root, "none")); err != nil || len(got) > 0 {
		t.Errorf("no folder yet: got %v, %v", got, err)
	}
	failed := config.Layout{Dir: filepath.Join(root, "failed")}
	killed := config.Layout{Dir: filepath.Join(root, "killed")}
	status := config.Status{Phase: config.PhaseFailed, Reason: "etcd died"}
	if err := config.Save(failed.Status(), status); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(killed.Logs(), 0o750); err != nil {
		t.Fatal(err)
	}
	got, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Known{
		{Name: "failed", Layout: failed, Status: status},
		{Name: "killed", Layout: killed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDownOfNothing(t *testing.T) {
	if err := Down(t.TempDir(), "never-there"); err != nil {
		t.Errorf("got %v, want none: it is gone", err)
	}
}
