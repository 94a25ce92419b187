package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/files"
)

// write makes files, and links for values that begin with "-> ".
func write(t *testing.T, base string, tree map[string]string) {
	t.Helper()
	for name, content := range tree {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(content) > 3 && content[:3] == "-> " {
			err = os.Symlink(content[3:], path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopy(t *testing.T) {
	cases := map[string]struct {
		reason    string
		tree      map[string]string
		want      map[string]string
		failure   string
		permanent bool
	}{
		"Plain": {
			reason: "files arrive under their names",
			tree:   map[string]string{"a.txt": "A", "b": ""},
			want:   map[string]string{"a.txt": "A", "b": ""},
		},
		"ConfigMap": {
			reason: "the way a ConfigMap is mounted does not show on the volume",
			tree: map[string]string{
				"..2026_11_30/a.txt": "A", "..data": "-> ..2026_11_30", "a.txt": "-> ..data/a.txt",
			},
			want: map[string]string{"a.txt": "A"},
		},
		"Empty": {
			reason: "no file is no success", tree: nil,
			failure: worker.ReasonSourceEmpty, permanent: true,
		},
		"Directory": {
			reason: "a template has plain files only", tree: map[string]string{"d/a": "A"},
			failure: worker.ReasonUnsupportedFormat, permanent: true,
		},
		"LinkOut": {
			reason: "a link cannot make the worker read its own secrets",
			tree:   map[string]string{"a": "-> /etc/hostname"}, failure: worker.ReasonWorkerFailed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in, out := t.TempDir(), t.TempDir()
			write(t, in, tc.tree)
			from, err := files.Open(in)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			to, err := dir.Open(out, dir.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			got, err := runner.Run(t.Context(), from, to, runner.Options{})
			if tc.failure != "" {
				if reason, permanent := mover.Classify(err); err == nil || reason != tc.failure || permanent != tc.permanent {
					t.Errorf("%s: Run = %v (%s, permanent %t), want %s, %t", tc.reason, err, reason, permanent, tc.failure, tc.permanent)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: Run = %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, movertest.Tree(t, out)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if got.Files != int64(len(tc.want)) || got.Digest == "" {
				t.Errorf("%s: Run = %+v, want %d files and a digest", tc.reason, got, len(tc.want))
			}
		})
	}
}
