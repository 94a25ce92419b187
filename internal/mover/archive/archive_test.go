package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/archive"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
)

func open(t *testing.T, target string, opts dir.Options) *dir.Sink {
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

func extract(t *testing.T, data []byte, s *dir.Sink, opts archive.Options) (archive.Outcome, error) {
	t.Helper()
	opts.Scratch = s.Scratch
	return archive.Extract(t.Context(), bytes.NewReader(data), s, opts)
}

func TestHostile(t *testing.T) {
	for kind, archives := range map[string]map[string]movertest.Archive{
		"Tar": movertest.HostileTars(t), "Zip": movertest.HostileZips(t),
	} {
		for name, a := range archives {
			t.Run(kind+"/"+name, func(t *testing.T) {
				target, unharmed := movertest.Arena(t)
				defer unharmed()
				s := open(t, target, dir.Options{})
				_, err := extract(t, a.Data, s, archive.Options{SkipUnsupported: a.Lax})
				if err == nil {
					_, err = s.Finish(t.Context())
				}
				if reason, _ := mover.Classify(err); a.Fails != "" && (err == nil || reason != a.Fails) {
					t.Errorf("%s: Extract = %v (%s), want %s", a.Why, err, reason, a.Fails)
				}
				if a.Fails == "" && err != nil {
					t.Errorf("%s: Extract = %v", a.Why, err)
				}
				if a.Want != nil {
					if diff := cmp.Diff(a.Want, movertest.Tree(t, target)); diff != "" {
						t.Errorf("%s: -want +got\n%s", a.Why, diff)
					}
				}
			})
		}
	}
}

// compressors make what decompressors take.
func compressors(t *testing.T) map[string]func([]byte) []byte {
	through := func(w func(io.Writer) (io.WriteCloser, error)) func([]byte) []byte {
		return func(in []byte) []byte {
			var out bytes.Buffer
			z, err := w(&out)
			if err == nil {
				_, err = z.Write(in)
			}
			if err == nil {
				err = z.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
	}
	return map[string]func([]byte) []byte{
		"Plain": func(in []byte) []byte { return in },
		"Gzip":  through(func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }),
		"Zstd":  through(func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }),
		"Xz":    through(func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) }),
		"Bzip2": func(in []byte) []byte {
			// The standard library has no writer.
			cmd := exec.CommandContext(t.Context(), "bzip2", "-c")
			cmd.Stdin = bytes.NewReader(in)
			out, err := cmd.Output()
			if errors.Is(err, exec.ErrNotFound) {
				t.Skip("no bzip2 here")
			}
			if err != nil {
				t.Fatal(err)
			}
			return out
		},
	}
}

func TestCompression(t *testing.T) {
	data := movertest.Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 3 << 20}, tar.Header{Typeflag: tar.TypeReg, Name: "d/small", Size: 7})
	want := map[string]string{"big": movertest.Content("big", 3<<20), "d": "dir", "d/small": "d/small"}
	for name, compress := range compressors(t) {
		t.Run(name, func(t *testing.T) {
			packed := compress(data)
			target := t.TempDir()
			s := open(t, target, dir.Options{})
			if _, err := extract(t, packed, s, archive.Options{}); err != nil {
				t.Fatalf("Extract: %v", err)
			}
			got := movertest.Tree(t, target)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the volume holds other data than the archive: %d entries", len(got))
			}
			// Cut anywhere, it is no success.
			for _, cut := range []int{1, len(packed) / 2, len(packed) - 1} {
				if name == "Plain" && cut == len(packed)-1 {
					continue // a missing byte of padding harms nobody
				}
				s := open(t, t.TempDir(), dir.Options{})
				if out, err := extract(t, packed[:cut], s, archive.Options{}); err == nil {
					t.Errorf("Extract of %d bytes of %d = %+v, want an error", cut, len(packed), out)
				}
			}
			if name != "Plain" {
				s := open(t, t.TempDir(), dir.Options{})
				if _, err := extract(t, append(bytes.Clone(packed), "garbage"...), s, archive.Options{}); err == nil {
					t.Error("Extract of an archive with garbage after it = nil, want an error")
				}
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	data := movertest.Tar(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "app-1.0/"},
		tar.Header{Typeflag: tar.TypeReg, Name: "app-1.0/README", Size: 1},
		tar.Header{Typeflag: tar.TypeReg, Name: "app-1.0/data/x/one", Size: 1},
		tar.Header{Typeflag: tar.TypeLink, Name: "app-1.0/data/two", Linkname: "app-1.0/data/x/one"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "app-1.0/data/three", Linkname: "x/one"},
	)
	all := map[string]string{"README": "a", "data": "dir", "data/x": "dir", "data/x/one": "a", "data/two": "a", "data/three": "-> x/one"}
	cases := map[string]struct {
		reason string
		opts   archive.Options
		want   map[string]string
		fails  string
	}{
		"Strip":        {reason: "the leading part is taken off", opts: archive.Options{StripComponents: 1}, want: all},
		"StripMore":    {reason: "what has no more parts is left out", opts: archive.Options{StripComponents: 3}, want: map[string]string{"one": "a"}},
		"StripAll":     {reason: "nothing left is empty", opts: archive.Options{StripComponents: 9}, fails: worker.ReasonSourceEmpty},
		"SubPath":      {reason: "a part is taken, links with it", opts: archive.Options{SubPath: "app-1.0/data"}, want: map[string]string{"x": "dir", "x/one": "a", "two": "a", "three": "-> x/one"}},
		"Both":         {reason: "stripping comes second", opts: archive.Options{SubPath: "app-1.0/data", StripComponents: 1}, want: map[string]string{"one": "a"}},
		"OneFile":      {reason: "a part may be a file", opts: archive.Options{SubPath: "app-1.0/README"}, want: map[string]string{"README": "a"}},
		"Missing":      {reason: "a part that is not there", opts: archive.Options{SubPath: "app-2.0"}, fails: worker.ReasonSourceMissing},
		"Prefix":       {reason: "a part is not the beginning of a name", opts: archive.Options{SubPath: "app-1"}, fails: worker.ReasonSourceMissing},
		"LinkOut":      {reason: "a hard link to what is not taken", opts: archive.Options{SubPath: "app-1.0/data/two"}, fails: worker.ReasonUnsupportedFormat},
		"TooMany":      {reason: "entries are bounded", opts: archive.Options{MaxEntries: 4}, fails: worker.ReasonUnsupportedFormat},
		"WrongFormat":  {reason: "a tar archive is no zip", opts: archive.Options{Format: archive.Zip}, fails: worker.ReasonUnsupportedFormat},
		"StatedFormat": {reason: "a stated format", opts: archive.Options{Format: archive.Tar, StripComponents: 1}, want: all},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := t.TempDir()
			_, err := extract(t, data, open(t, target, dir.Options{}), tc.opts)
			if tc.fails != "" {
				if reason, _ := mover.Classify(err); err == nil || reason != tc.fails {
					t.Errorf("%s: Extract = %v, want %s", tc.reason, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: Extract = %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, movertest.Tree(t, target)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSpecialBitsAndModes(t *testing.T) {
	data := movertest.Tar(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o711},
		tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o2555},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/su", Size: 1, Mode: 0o4755},
		tar.Header{Typeflag: tar.TypeReg, Name: "secret", Size: 1, Mode: 0o1000},
	)
	cases := map[string]struct {
		opts dir.Options
		want map[string]fs.FileMode
	}{
		"Default": {want: map[string]fs.FileMode{".": fs.ModeDir | 0o755, "d": fs.ModeDir | 0o555, "d/su": 0o755, "secret": 0}},
		"Special": {
			opts: dir.Options{SpecialBits: true},
			want: map[string]fs.FileMode{".": fs.ModeDir | 0o755, "d": fs.ModeDir | fs.ModeSetgid | 0o555, "d/su": fs.ModeSetuid | 0o755, "secret": fs.ModeSticky},
		},
	}
	if os.Geteuid() == 0 {
		cases["Ownership"] = struct {
			opts dir.Options
			want map[string]fs.FileMode
		}{
			opts: dir.Options{Ownership: true},
			want: map[string]fs.FileMode{".": fs.ModeDir | 0o711, "d": fs.ModeDir | 0o555, "d/su": 0o755, "secret": 0},
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := t.TempDir()
			if err := os.Chmod(target, 0o755); err != nil {
				t.Fatal(err)
			}
			s := open(t, target, tc.opts)
			if _, err := extract(t, data, s, archive.Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(filepath.Join(target, "d"), 0o755) //nolint:errcheck // for the clean-up
			for name, want := range tc.want {
				info, err := os.Lstat(filepath.Join(target, name))
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != want {
					t.Errorf("mode of %q = %v, want %v", name, info.Mode(), want)
				}
				if name != "." && !info.ModTime().Equal(movertest.ModTime) {
					t.Errorf("time of %q = %v, want that of the archive", name, info.ModTime())
				}
			}
		})
	}
}

func TestOwnership(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners take root")
	}
	data := movertest.Tar(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755, Uid: 1001, Gid: 1002},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Size: 1, Uid: 1003, Gid: 1004},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d", Uid: 1005, Gid: 1006},
	)
	for name, want := range map[bool]map[string][2]uint32{
		false: {"d": {0, 0}, "d/f": {0, 0}, "l": {0, 0}},
		true:  {"d": {1001, 1002}, "d/f": {1003, 1004}, "l": {1005, 1006}},
	} {
		target := t.TempDir()
		s := open(t, target, dir.Options{Ownership: name})
		if _, err := extract(t, data, s, archive.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		for file, want := range want {
			info, err := os.Lstat(filepath.Join(target, file))
			if err != nil {
				t.Fatal(err)
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || st.Uid != want[0] || st.Gid != want[1] {
				t.Errorf("ownership %t: owner of %q = %d:%d, want %v", name, file, st.Uid, st.Gid, want)
			}
		}
	}
}

func TestHolesStayHoles(t *testing.T) {
	target := t.TempDir()
	s := open(t, target, dir.Options{ReadBack: true})
	if _, err := extract(t, movertest.SparseTar(t, "s", 40<<20, 3), s, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(target, "s"))
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() != 40<<20 || st.Blocks*512 > 1<<20 {
		t.Errorf("file of %d bytes takes %d, want 40 MiB that take little", info.Size(), st.Blocks*512)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	data := movertest.Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 1})
	_, err := archive.Extract(ctx, bytes.NewReader(data), open(t, t.TempDir(), dir.Options{}), archive.Options{})
	if !errors.Is(err, stopped) {
		t.Errorf("Extract = %v, want %v", err, stopped)
	}
}

// FuzzExtract holds that no archive changes anything outside of the target.
func FuzzExtract(f *testing.F) {
	for _, a := range movertest.HostileTars(f) {
		f.Add(a.Data)
	}
	for _, a := range movertest.HostileZips(f) {
		f.Add(a.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		target, unharmed := movertest.Arena(t)
		defer unharmed()
		s := open(t, target, dir.Options{})
		out, err := extract(t, data, s, archive.Options{SkipUnsupported: true, MaxEntries: 1000})
		if err == nil && out.Entries == 0 {
			t.Errorf("Extract = %+v, want an error for nothing", out)
		}
	})
}
