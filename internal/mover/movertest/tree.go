package movertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// TreeSink holds a sink for file systems to its contract. open returns a new
// sink for the directory target.
func TreeSink(t *testing.T, open func(t *testing.T, target string) mover.Sink) {
	t.Run("Content", func(t *testing.T) { treeContent(t, open) })
	t.Run("Replace", func(t *testing.T) { treeReplace(t, open) })
	t.Run("Failures", func(t *testing.T) { treeFailures(t, open) })
	t.Run("HostileNames", func(t *testing.T) { treeHostileNames(t, open) })
	t.Run("HostileLinks", func(t *testing.T) { treeHostileLinks(t, open) })
	t.Run("ThroughLinks", func(t *testing.T) { treeThroughLinks(t, open) })
	t.Run("Collisions", func(t *testing.T) { treeCollisions(t, open) })
}

type openTree = func(t *testing.T, target string) mover.Sink

// arena is a target with a neighbour that must not change.
func arena(t *testing.T) (target string, unharmed func()) {
	t.Helper()
	base := t.TempDir()
	target = filepath.Join(base, "target")
	for _, dir := range []string{target, filepath.Join(base, "neighbour")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(base, "neighbour", "secret")
	if err := os.WriteFile(secret, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	return target, func() {
		t.Helper()
		want := map[string]string{"neighbour": "dir", "neighbour/secret": "untouched", "target": "dir"}
		got := Tree(t, base)
		for name := range got {
			if strings.HasPrefix(name, "target/") {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outside of the target: -want +got\n%s", diff)
		}
	}
}

// Tree returns what is below directory by its path: the content of a file,
// "dir" for a directory, "-> target" for a link.
func Tree(t *testing.T, directory string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[name] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			out[name] = "-> " + link
			return err
		default:
			content, err := os.ReadFile(path) //nolint:gosec // a path of the test's own
			out[name] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func put(t *testing.T, s mover.Sink, e mover.Entry, content string) error {
	t.Helper()
	if e.Kind != mover.File {
		return s.Put(t.Context(), e, nil)
	}
	return s.Put(t.Context(), e, strings.NewReader(content))
}

func mustPut(t *testing.T, s mover.Sink, e mover.Entry, content string) {
	t.Helper()
	if err := put(t, s, e, content); err != nil {
		t.Fatalf("Put(%+v): %v", e, err)
	}
}

// digest is the digest of content.
func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return mover.FormatDigest(sum[:])
}

func treeContent(t *testing.T, open openTree) {
	target, unharmed := arena(t)
	defer unharmed()
	s := open(t, target)
	when := time.Date(2021, 8, 30, 12, 0, 0, 0, time.UTC)
	mustPut(t, s, mover.Entry{Path: "hello.txt", Size: 5, Digest: digest("hello"), ModTime: when}, "hello")
	mustPut(t, s, mover.Entry{Path: "empty", Size: 0}, "")
	mustPut(t, s, mover.Entry{Path: "d/", Kind: mover.Directory}, "")
	mustPut(t, s, mover.Entry{Path: "a/b/c", Size: mover.Unknown, Mode: fs.ModeSetuid | fs.ModeSticky | 0o750}, "deep")
	mustPut(t, s, mover.Entry{Path: "a/up", Kind: mover.Symlink, Link: "../hello.txt"}, "")
	mustPut(t, s, mover.Entry{Path: "...", Size: 1}, "x")
	mustPut(t, s, mover.Entry{Path: "sp ace\n\u202e-rf", Size: 1}, "y")
	got, err := s.Finish(t.Context())
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	if got.Bytes != 11 || got.Files != 5 || got.Digest == "" {
		t.Errorf("Finish = %+v, want 11 bytes in 5 files and a digest", got)
	}
	want := map[string]string{
		"hello.txt": "hello", "empty": "", "d": "dir", "a": "dir", "a/b": "dir", "a/b/c": "deep",
		"a/up": "-> ../hello.txt", "...": "x", "sp ace\n\u202e-rf": "y",
	}
	if diff := cmp.Diff(want, Tree(t, target)); diff != "" {
		t.Errorf("target: -want +got\n%s", diff)
	}
	for name, want := range map[string]fs.FileMode{"hello.txt": 0o644, "a/b/c": 0o750, "d": fs.ModeDir | 0o755} {
		info, err := os.Lstat(filepath.Join(target, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("mode of %q = %v, want %v", name, info.Mode(), want)
		}
		if name == "hello.txt" && !info.ModTime().Equal(when) {
			t.Errorf("time of %q = %v, want %v", name, info.ModTime(), when)
		}
	}
}

func treeReplace(t *testing.T, open openTree) {
	target, unharmed := arena(t)
	defer unharmed()
	s := open(t, target)
	mustPut(t, s, mover.Entry{Path: "f", Size: 5}, "first")
	mustPut(t, s, mover.Entry{Path: "f", Size: 6}, "second")
	mustPut(t, s, mover.Entry{Path: "l", Kind: mover.Symlink, Link: "f"}, "")
	// A file put under the name of a link replaces the link, not its target.
	mustPut(t, s, mover.Entry{Path: "l", Size: 5}, "third")
	want := map[string]string{"f": "second", "l": "third"}
	if diff := cmp.Diff(want, Tree(t, target)); diff != "" {
		t.Errorf("target: -want +got\n%s", diff)
	}
}

func treeFailures(t *testing.T, open openTree) {
	cases := map[string]struct {
		reason    string
		entry     mover.Entry
		data      io.Reader
		want      string
		permanent bool
	}{
		"Short": {
			reason: "a connection that ends early is not the end of the file",
			entry:  mover.Entry{Path: "f", Size: 10}, data: strings.NewReader("short"),
			want: worker.ReasonTruncated,
		},
		"Long": {
			reason: "more than announced is other data than announced",
			entry:  mover.Entry{Path: "f", Size: 2}, data: strings.NewReader("longer"),
			want: worker.ReasonDigestMismatch, permanent: true,
		},
		"Digest": {
			reason: "an error page has another digest",
			entry:  mover.Entry{Path: "f", Size: mover.Unknown, Digest: digest("data")}, data: strings.NewReader("<html>"),
			want: worker.ReasonDigestMismatch, permanent: true,
		},
		"Reader": {
			reason: "an error of the source keeps its reason",
			entry:  mover.Entry{Path: "f", Size: 10},
			data:   iotest.ErrReader(mover.Retryable(worker.ReasonSourceUnreachable, errors.New("reset"))),
			want:   worker.ReasonSourceUnreachable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target, unharmed := arena(t)
			defer unharmed()
			s := open(t, target)
			mustPut(t, s, mover.Entry{Path: "f", Size: 3}, "old")
			err := s.Put(t.Context(), tc.entry, tc.data)
			reason, permanent := mover.Classify(err)
			if err == nil || reason != tc.want || permanent != tc.permanent {
				t.Errorf("%s: Put = %v (%s, permanent %t), want %s, %t", tc.reason, err, reason, permanent, tc.want, tc.permanent)
			}
			if diff := cmp.Diff(map[string]string{"f": "old"}, Tree(t, target)); diff != "" {
				t.Errorf("after a failed Put: -want +got\n%s", diff)
			}
		})
	}
	t.Run("Cancelled", func(t *testing.T) {
		target, _ := arena(t)
		s := open(t, target)
		ctx, cancel := context.WithCancel(t.Context())
		stop := readerFunc(func(p []byte) (int, error) { cancel(); return copy(p, "x"), nil })
		if err := s.Put(ctx, mover.Entry{Path: "f", Size: mover.Unknown}, stop); !errors.Is(err, context.Canceled) {
			t.Errorf("Put of endless data after cancel = %v, want %v", err, context.Canceled)
		}
		if got := Tree(t, target); len(got) != 0 {
			t.Errorf("after a cancelled Put: %v, want nothing", got)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
