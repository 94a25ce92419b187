package dir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
)

func open(opts dir.Options) func(*testing.T, string) mover.Sink {
	return func(t *testing.T, target string) mover.Sink {
		t.Helper()
		s, err := dir.Open(target, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

func TestContract(t *testing.T) {
	t.Run("Plain", func(t *testing.T) { movertest.TreeSink(t, open(dir.Options{})) })
	t.Run("ReadBack", func(t *testing.T) { movertest.TreeSink(t, open(dir.Options{ReadBack: true})) })
}

func TestOpenMissing(t *testing.T) {
	if _, err := dir.Open(filepath.Join(t.TempDir(), "none"), dir.Options{}); err == nil {
		t.Error("Open of a directory that does not exist = nil, want an error")
	}
}

// FuzzNames puts a file and then a link under any name and with any target: the
// neighbour of the target must never change.
func FuzzNames(f *testing.F) {
	for _, name := range movertest.HostileNames() {
		f.Add(name, "f")
	}
	for _, link := range movertest.HostileLinks() {
		f.Add("d/l", link)
	}
	f.Fuzz(func(t *testing.T, name, link string) {
		base := t.TempDir()
		target := filepath.Join(base, "target")
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
		s := open(dir.Options{})(t, target)
		// Errors are what the fuzzer looks for: only their effect is judged.
		_ = s.Put(t.Context(), mover.Entry{Path: name, Kind: mover.Symlink, Link: link}, nil)
		_ = s.Put(t.Context(), mover.Entry{Path: name + "/f", Size: 1}, strings.NewReader("x"))
		_ = s.Put(t.Context(), mover.Entry{Path: link, Size: mover.Unknown}, strings.NewReader("x"))
		if got := movertest.Tree(t, base); len(got) > 0 {
			for path, content := range got {
				if path != "target" && !strings.HasPrefix(path, "target/") {
					t.Errorf("%q outside of the target: %q", path, content)
				}
				if to, ok := strings.CutPrefix(content, "-> "); ok && strings.HasPrefix(path, "target/") {
					if resolved, err := filepath.EvalSymlinks(filepath.Join(base, path)); err == nil && !strings.HasPrefix(resolved, target) {
						t.Errorf("link %q to %q leads to %q", path, to, resolved)
					}
				}
			}
		}
	})
}

func TestNotWritable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	target := t.TempDir()
	if err := os.Chmod(target, 0o555); err != nil {
		t.Fatal(err)
	}
	s := open(dir.Options{})(t, target)
	err := s.Put(t.Context(), mover.Entry{Path: "f", Size: 1}, strings.NewReader("x"))
	if reason, permanent := mover.Classify(err); reason != worker.ReasonVolumeNotWritable || !permanent {
		t.Errorf("Put = %v (%s, permanent %t), want %s for good", err, reason, permanent, worker.ReasonVolumeNotWritable)
	}
}
