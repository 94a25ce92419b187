package movertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// refused fails the test unless err is a refusal for good.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	reason, permanent := mover.Classify(err)
	if err == nil || reason != worker.ReasonUnsupportedFormat || !permanent {
		t.Errorf("%s: Put = %v (%s, permanent %t), want %s for good", what, err, reason, permanent, worker.ReasonUnsupportedFormat)
	}
}

func treeHostileNames(t *testing.T, open openTree) {
	for name, path := range HostileNames() {
		t.Run(name, func(t *testing.T) {
			target, unharmed := arena(t)
			defer unharmed()
			s := open(t, target)
			mustPut(t, s, mover.Entry{Path: "a", Kind: mover.Directory}, "")
			refused(t, "file", put(t, s, mover.Entry{Path: path, Size: 1}, "x"))
			if path != "." && name != "TrailingSlash" {
				refused(t, "directory", put(t, s, mover.Entry{Path: path, Kind: mover.Directory}, ""))
			}
			if name == "TrailingSlash" {
				return
			}
			refused(t, "link", put(t, s, mover.Entry{Path: path, Kind: mover.Symlink, Link: "a"}, ""))
			if name == "LongPath" {
				return // how much of it was made before is not of interest
			}
			if diff := cmp.Diff(map[string]string{"a": "dir"}, Tree(t, target)); diff != "" {
				t.Errorf("target: -want +got\n%s", diff)
			}
		})
	}
}

func treeHostileLinks(t *testing.T, open openTree) {
	for name, link := range HostileLinks() {
		t.Run(name, func(t *testing.T) {
			target, unharmed := arena(t)
			defer unharmed()
			s := open(t, target)
			mustPut(t, s, mover.Entry{Path: "dir", Kind: mover.Directory}, "")
			refused(t, "link", put(t, s, mover.Entry{Path: "dir/link", Kind: mover.Symlink, Link: link}, ""))
			if diff := cmp.Diff(map[string]string{"dir": "dir"}, Tree(t, target)); diff != "" {
				t.Errorf("target: -want +got\n%s", diff)
			}
		})
	}
}

// treeThroughLinks writes through links that somebody else left on the volume
// and through links that were put.
func treeThroughLinks(t *testing.T, open openTree) {
	target, unharmed := arena(t)
	defer unharmed()
	s := open(t, target)
	for name, link := range map[string]string{"relative": "../neighbour", "absolute": filepath.Join(target, "..", "neighbour")} {
		if err := os.Symlink(link, filepath.Join(target, name)); err != nil {
			t.Fatal(err)
		}
		refused(t, "file through "+name, put(t, s, mover.Entry{Path: name + "/secret", Size: 1}, "x"))
		refused(t, "directory through "+name, put(t, s, mover.Entry{Path: name + "/d", Kind: mover.Directory}, ""))
		refused(t, "link through "+name, put(t, s, mover.Entry{Path: name + "/l", Kind: mover.Symlink, Link: "secret"}, ""))
	}
	// A link to a directory within the volume may be written through, but a
	// link behind it could lead further up than its letters say.
	mustPut(t, s, mover.Entry{Path: "here", Kind: mover.Symlink, Link: "."}, "")
	mustPut(t, s, mover.Entry{Path: "here/f", Size: 1}, "x")
	refused(t, "link behind a link", put(t, s, mover.Entry{Path: "here/l", Kind: mover.Symlink, Link: "../f"}, ""))
}

func treeCollisions(t *testing.T, open openTree) {
	target, unharmed := arena(t)
	defer unharmed()
	s := open(t, target)
	mustPut(t, s, mover.Entry{Path: "d/f", Size: 1}, "x")
	refused(t, "file over a directory", put(t, s, mover.Entry{Path: "d", Size: 1}, "y"))
	refused(t, "link over a directory", put(t, s, mover.Entry{Path: "d", Kind: mover.Symlink, Link: "e"}, ""))
	refused(t, "directory over a file", put(t, s, mover.Entry{Path: "d/f", Kind: mover.Directory}, ""))
	refused(t, "file below a file", put(t, s, mover.Entry{Path: "d/f/g", Size: 1}, "y"))
	if diff := cmp.Diff(map[string]string{"d": "dir", "d/f": "x"}, Tree(t, target)); diff != "" {
		t.Errorf("target: -want +got\n%s", diff)
	}
}
