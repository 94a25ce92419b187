package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVolumeRecords(t *testing.T) {
	s := open(t)
	day := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	young := Volume{ID: VolumeID("young"), Name: "young", Created: day.Add(time.Hour), Location: topology.Location{Placement: topology.Zonal, Zone: "a"}}
	old := Volume{ID: VolumeID("old"), Name: "old", Size: 4096, Created: day, Published: map[string]Publication{"n": {Mode: "SINGLE_NODE_WRITER"}}}
	for _, v := range []Volume{young, old} {
		if err := s.PutVolume(v); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Volumes()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Volume{old, young}, got); diff != "" {
		t.Errorf("Volumes(), the oldest first: -want, +got:\n%s", diff)
	}
	for range 2 {
		if err := s.DeleteVolume(old.ID); err != nil {
			t.Fatalf("delete may be repeated: %v", err)
		}
	}
	if _, err := s.Volume(old.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("want ErrNotFound for a deleted volume, got %v", err)
	}
	if _, err := s.Volume("../nodes/n"); !errors.Is(err, ErrNotFound) {
		t.Errorf("want ErrNotFound for an ID that is a path, got %v", err)
	}
}

func TestMigrationEnds(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	zonal, regional := topology.Location{Placement: topology.Zonal, Zone: "a"}, topology.Location{Placement: topology.Regional, Zone: "a"}
	v := Volume{Location: zonal, Migration: &Migration{Target: regional, Start: start, End: start.Add(time.Minute)}}
	if got := v.At(start.Add(59 * time.Second)); got.Location != zonal || got.Migration == nil {
		t.Errorf("a volume that is moving is where it was, got %+v", got)
	}
	if got := v.At(start.Add(time.Minute)); got.Location != regional || got.Migration != nil {
		t.Errorf("at the end a volume is at the target, got %+v", got)
	}
}

func TestLockExcludes(t *testing.T) {
	s := open(t)
	const workers, rounds = 8, 20
	var inside, total int
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range rounds {
				unlock, err := s.Lock(t.Context(), "vol-1")
				if err != nil {
					t.Error(err)
					return
				}
				inside++
				if inside != 1 {
					t.Errorf("%d holders of one lock", inside)
				}
				total++
				inside--
				unlock()
			}
		})
	}
	group.Wait()
	if total != workers*rounds {
		t.Errorf("want %d turns, got %d", workers*rounds, total)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir(), locksDir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("want no lock file left, got %q, %v", left, err)
	}
}

func TestLockGivesUp(t *testing.T) {
	s := open(t)
	unlock, err := s.Lock(t.Context(), "vol-1")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockPoll)
	defer cancel()
	if _, err := s.Lock(ctx, "vol-1"); !errors.Is(err, ErrBusy) {
		t.Errorf("want ErrBusy, got %v", err)
	}
}

// TestSweep leaves what calls leave that are killed, each at another line.
func TestSweep(t *testing.T) {
	s := open(t)
	whole := Volume{ID: VolumeID("whole")}
	if err := s.PutVolume(whole); err != nil {
		t.Fatal(err)
	}
	orphan := s.VolumeImage(VolumeID("orphan"))
	files := map[string]bool{
		s.VolumeImage(whole.ID):                     true,
		TempImage(s.VolumeImage(whole.ID)):          false,
		orphan:                                      false,
		TempImage(orphan):                           false,
		s.SnapshotImage(SnapshotID("orphan")):       false,
		s.record(volumesDir, ".tmp-vol-1.json-123"): false,
	}
	for path := range files {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, kept := range files {
		if _, err := os.Stat(path); kept != (err == nil) {
			t.Errorf("%s: want kept %t, got %v", filepath.Base(path), kept, err)
		}
	}
	if _, err := s.Volume(whole.ID); err != nil {
		t.Errorf("want the record of a whole volume kept, got %v", err)
	}
}
