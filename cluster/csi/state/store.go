package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// ErrNotFound is returned for an object without a record.
var ErrNotFound = errors.New("not found")

const (
	volumesDir   = "volumes"
	snapshotsDir = "snapshots"
	nodesDir     = "nodes"
	locksDir     = "locks"

	recordSuffix = ".json"
	imageSuffix  = ".img"
	tempPrefix   = ".tmp-"
)

// validID keeps identifiers, which callers choose, from leaving their folder.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// A Store is a state directory. It may be opened by any number of processes.
type Store struct{ dir string }

// Open returns the store in the directory, which is made if it is missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	// The kernel names the files behind loop devices by their real path.
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("resolve state directory: %w", err)
	}
	for _, sub := range []string{volumesDir, snapshotsDir, nodesDir, locksDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	return &Store{dir: dir}, nil
}

// Dir returns the state directory.
func (s *Store) Dir() string { return s.dir }

// VolumeImage returns the path of a volume's image.
func (s *Store) VolumeImage(id string) string {
	return filepath.Join(s.dir, volumesDir, id+imageSuffix)
}

// SnapshotImage returns the path of a snapshot's image.
func (s *Store) SnapshotImage(id string) string {
	return filepath.Join(s.dir, snapshotsDir, id+imageSuffix)
}

// Volume returns the record of a volume, or ErrNotFound.
func (s *Store) Volume(id string) (Volume, error) {
	return read[Volume](s.dir, volumesDir, id)
}

// PutVolume writes the record of a volume. The caller holds its lock.
func (s *Store) PutVolume(v Volume) error { return write(s.dir, volumesDir, v.ID, v) }

// DeleteVolume removes a volume's image and record. It may be repeated.
func (s *Store) DeleteVolume(id string) error {
	return remove(s.record(volumesDir, id), s.VolumeImage(id))
}

// Volumes returns all volumes, the oldest first.
func (s *Store) Volumes() ([]Volume, error) {
	volumes, err := list[Volume](s.dir, volumesDir)
	slices.SortFunc(volumes, func(a, b Volume) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return volumes, err
}

// Snapshot returns the record of a snapshot, or ErrNotFound.
func (s *Store) Snapshot(id string) (Snapshot, error) {
	return read[Snapshot](s.dir, snapshotsDir, id)
}

// PutSnapshot writes the record of a snapshot. The caller holds its lock.
func (s *Store) PutSnapshot(snap Snapshot) error { return write(s.dir, snapshotsDir, snap.ID, snap) }

// DeleteSnapshot removes a snapshot's image and record. It may be repeated.
func (s *Store) DeleteSnapshot(id string) error {
	return remove(s.record(snapshotsDir, id), s.SnapshotImage(id))
}

// Snapshots returns all snapshots, the oldest first.
func (s *Store) Snapshots() ([]Snapshot, error) {
	snapshots, err := list[Snapshot](s.dir, snapshotsDir)
	slices.SortFunc(snapshots, func(a, b Snapshot) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return snapshots, err
}

// PutNode records a node, so that the controller knows where it is.
func (s *Store) PutNode(n topology.Node) error { return write(s.dir, nodesDir, n.ID, n) }

// Nodes returns the nodes that ever registered, by their ID's order.
func (s *Store) Nodes() ([]topology.Node, error) {
	nodes, err := list[topology.Node](s.dir, nodesDir)
	slices.SortFunc(nodes, func(a, b topology.Node) int { return strings.Compare(a.ID, b.ID) })
	return nodes, err
}

// Sweep removes what interrupted calls left: temporary files, and images that
// no record speaks of.
func (s *Store) Sweep(ctx context.Context) error {
	var errs []error
	for _, kind := range []string{volumesDir, snapshotsDir} {
		entries, err := os.ReadDir(filepath.Join(s.dir, kind))
		if err != nil {
			return fmt.Errorf("sweep %s: %w", kind, err)
		}
		for _, e := range entries {
			name := e.Name()
			if !strings.HasSuffix(name, imageSuffix) && !strings.HasPrefix(name, tempPrefix) {
				continue
			}
			id, _, _ := strings.Cut(strings.TrimPrefix(name, tempPrefix), ".")
			errs = append(errs, s.sweepOne(ctx, kind, id, name))
		}
	}
	return errors.Join(errs...)
}

// sweepOne removes a file unless it is the image of a recorded object. The
// object's lock is held, so that no call is in the middle of making it.
func (s *Store) sweepOne(ctx context.Context, kind, id, name string) error {
	unlock, err := s.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if !strings.HasPrefix(name, tempPrefix) {
		if _, err := os.Lstat(s.record(kind, id)); err == nil {
			return nil
		}
	}
	return remove(filepath.Join(s.dir, kind, name))
}

// TempImage returns where to build the image at the path before it is renamed
// there: a name that Sweep recognises.
func TempImage(path string) string {
	return filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path))
}

func (s *Store) record(kind, id string) string { return recordPath(s.dir, kind, id) }

func recordPath(dir, kind, id string) string { return filepath.Join(dir, kind, id+recordSuffix) }

func read[T any](dir, kind, id string) (T, error) {
	var v T
	if !validID.MatchString(id) {
		return v, fmt.Errorf("read %s %q: %w", kind, id, ErrNotFound)
	}
	data, err := os.ReadFile(recordPath(dir, kind, id))
	if errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("read %s %q: %w", kind, id, ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("read %s %q: %w", kind, id, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("decode %s %q: %w", kind, id, err)
	}
	return v, nil
}

func list[T any](dir, kind string) ([]T, error) {
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	var all []T
	for _, e := range entries {
		id, isRecord := strings.CutSuffix(e.Name(), recordSuffix)
		if !isRecord || strings.HasPrefix(id, tempPrefix) {
			continue
		}
		v, err := read[T](dir, kind, id)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since the folder was read
		}
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func write(dir, kind, id string, v any) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("write %s %q: the name is not usable as a file name", kind, id)
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s %q: %w", kind, id, err)
	}
	if err := WriteFile(recordPath(dir, kind, id), append(data, '\n')); err != nil {
		return fmt.Errorf("write %s %q: %w", kind, id, err)
	}
	return nil
}

// WriteFile replaces a file as a whole: readers see the old content or the new
// one, also after a crash.
func WriteFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// remove deletes the files in the given order's reverse, so that the first,
// the record, is there until all else is gone.
func remove(paths ...string) error {
	for _, path := range slices.Backward(paths) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %q: %w", filepath.Base(path), err)
		}
	}
	return nil
}
