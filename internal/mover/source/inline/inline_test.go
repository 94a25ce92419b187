package inline_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/inline"
)

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func manifest(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestCopy(t *testing.T) {
	mounted := t.TempDir()
	movertest.Mount(t, mounted, map[string]string{"app.conf": "A", "extra": "B"})
	empty := t.TempDir()
	cases := map[string]struct {
		reason   string
		manifest string
		run      runner.Options
		want     map[string]string
		modes    map[string]fs.FileMode
		fails    string
	}{
		"Text": {
			reason:   "text with and without a mode, and any bytes",
			manifest: manifest("file "+b64("d/a")+" 0600 "+b64("x y\n"), "file "+b64("b")+" - "+b64("\x00\xff"), "file "+b64("empty")+" - "),
			want:     map[string]string{"d": "dir", "d/a": "x y\n", "b": "\x00\xff", "empty": ""},
			modes:    map[string]fs.FileMode{"d/a": 0o600, "b": 0o644},
		},
		"Tree": {
			reason: "all keys of a mounted object below a path", manifest: manifest("tree configMap " + b64("etc") + " 0640"),
			want:  map[string]string{"etc": "dir", "etc/app.conf": "A", "etc/extra": "B"},
			modes: map[string]fs.FileMode{"etc/app.conf": 0o640},
		},
		"Keys": {
			reason: "single keys, elsewhere", want: map[string]string{"etc": "dir", "etc/x": "dir", "etc/x/y": "A", "etc/extra": "B"},
			manifest: manifest("tree configMap "+b64("etc")+" -", "key configMap "+b64("app.conf")+" "+b64("x/y")+" 0400", "key configMap "+b64("extra")+"  -"),
			modes:    map[string]fs.FileMode{"etc/x/y": 0o400, "etc/extra": 0o644},
		},
		"Root":           {reason: "no path is the volume itself", manifest: manifest("tree configMap  -"), want: map[string]string{"app.conf": "A", "extra": "B"}},
		"Nothing":        {reason: "no file is no success", manifest: "", fails: worker.ReasonSourceEmpty},
		"Allowed":        {reason: "unless it may be", manifest: "", run: runner.Options{ContinueIfMissing: true}, want: map[string]string{}},
		"NoObject":       {reason: "an optional object that is not there", manifest: manifest("file "+b64("a")+" - "+b64("A"), "tree secret  -"), fails: worker.ReasonSourceMissing},
		"NoKey":          {reason: "a key that is not there", manifest: manifest("tree configMap  -", "key configMap "+b64("none")+"  -"), fails: worker.ReasonSourceMissing},
		"Twice":          {reason: "two files for one name", manifest: manifest("file "+b64("app.conf")+" - ", "tree configMap  -"), fails: worker.ReasonUnsupportedFormat},
		"Up":             {reason: "a path that leaves the volume", manifest: manifest("file " + b64("../x") + " - "), fails: worker.ReasonUnsupportedFormat},
		"KeyUp":          {reason: "a path that leaves its tree", manifest: manifest("tree configMap "+b64("etc")+" -", "key configMap "+b64("extra")+" "+b64("../x")+" -"), fails: worker.ReasonUnsupportedFormat},
		"KeyOfElsewhere": {reason: "a key that leads out of the mount", manifest: manifest("tree configMap  -", "key configMap "+b64("../escape")+" "+b64("x")+" -"), fails: worker.ReasonWorkerFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := inline.ParseManifest([]byte(tc.manifest))
			if err != nil {
				t.Fatal(err)
			}
			from := inline.New(inline.Options{Manifest: m, Directories: map[string]string{"configMap": mounted, "secret": empty}})
			defer from.Close()
			target := t.TempDir()
			to, err := dir.Open(target, dir.Options{ReadBack: true})
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			_, err = runner.Run(t.Context(), from, to, tc.run)
			if tc.fails != "" {
				if reason, _ := mover.Classify(err); err == nil || reason != tc.fails {
					t.Errorf("%s: Run = %v (%s), want %s", tc.reason, err, reason, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: Run = %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, movertest.Tree(t, target)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			for file, want := range tc.modes {
				info, err := os.Stat(filepath.Join(target, file))
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != want {
					t.Errorf("%s: mode of %q = %v, want %v", tc.reason, file, info.Mode(), want)
				}
			}
		})
	}
}

func TestParseManifestRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"Word": "link a b c", "Few": "file YQ== -", "Many": "file YQ== - YQ== YQ==", "Base64": "file !! - YQ==", "Mode": "file YQ== 9 YQ==",
		"Setuid": "file YQ== 4755 YQ==", "ModeZero": "file YQ== 0 YQ==", "NoTree": "key secret YQ== YQ== -",
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := inline.ParseManifest([]byte(text)); err == nil {
				t.Errorf("ParseManifest(%q) = %+v, want an error", text, m)
			}
		})
	}
}
