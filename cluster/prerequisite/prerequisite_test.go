package prerequisite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeApt is a script in the place of apt-get that creates the file it is asked
// for, fails as often as the file `fail` has lines, and records its arguments.
const fakeApt = `#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
if [ -s fail ]; then sed -i 1d fail; echo "E: no network" >&2; exit 100; fi
[ "$1" = install ] && touch seccomp.h
exit 0
`

func TestEnsure(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Machine)
		fails  int
		broken bool // apt-get does not bring what is missing
		want   string
		calls  []string
	}{
		"nothing is missing": {
			reason: "apt-get is left alone",
			change: func(m *Machine) { m.Needs = nil },
		},
		"package is missing": {
			reason: "it is installed",
			calls:  []string{"install -y --no-install-recommends libseccomp-dev"},
		},
		"list of packages is old": {
			reason: "it is renewed, once",
			fails:  1,
			calls: []string{
				"install -y --no-install-recommends libseccomp-dev",
				"update",
				"install -y --no-install-recommends libseccomp-dev",
			},
		},
		"no network": {
			reason: "says what apt-get said and what to do",
			fails:  9,
			want:   "apt-get update does not work (E: no network): check the network, or install libseccomp-dev yourself",
			calls:  []string{"install -y --no-install-recommends libseccomp-dev", "update"},
		},
		"package does not have it": {
			reason: "nobody is sent round in circles",
			broken: true,
			want:   "still missing after apt-get install: install what Debian calls libseccomp-dev",
			calls:  []string{"install -y --no-install-recommends libseccomp-dev"},
		},
		"not Debian": {
			reason: "names the packages for the user to find",
			change: func(m *Machine) { m.AptGet = "" },
			want:   "missing on this machine, which has no apt-get: install what Debian calls libseccomp-dev",
		},
		"not Debian, but complete": {
			reason: "nobody needs apt-get then",
			change: func(m *Machine) { m.AptGet, m.Needs = "", nil },
		},
		"not root": {
			reason: "says how to become root",
			change: func(m *Machine) { m.UID = 1000 },
			want:   "clusters need root for namespaces, mounts and cgroups: run it with sudo",
		},
		"not Linux": {
			reason: "says where it would work",
			change: func(m *Machine) { m.OS = "darwin" },
			want:   "clusters need Linux and this is darwin: run it in a Linux virtual machine",
		},
		"full disk": {
			reason: "says how much there is, how much is needed and what to do",
			change: func(m *Machine) { m.MinFree = 1 << 60 },
			want:   "free some, or set SLUICE_BUILD_DIR to a folder on a larger disk",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := fakeApt
			if tc.broken {
				script = strings.Replace(script, "touch seccomp.h", "true", 1)
			}
			write(t, filepath.Join(dir, "apt-get"), script)
			write(t, filepath.Join(dir, "fail"), strings.Repeat("again\n", tc.fails))
			m := Machine{
				OS:     "linux",
				AptGet: filepath.Join(dir, "apt-get"),
				Disk:   filepath.Join(dir, "not", "there", "yet"),
				Needs:  []Need{{File: filepath.Join(dir, "seccomp.h"), Package: "libseccomp-dev"}},
			}
			if tc.change != nil {
				tc.change(&m)
			}
			err := m.Ensure(t.Context(), func(string) {})
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v, want none (%s)", err, tc.reason)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q (%s)", err, tc.want, tc.reason)
			case tc.want != "" && (!IsProblem(err) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %q, want one line that the user can act on", err)
			}
			var calls []string
			if data, err := os.ReadFile(filepath.Join(dir, "calls")); err == nil {
				calls = strings.Split(strings.TrimSpace(string(data)), "\n")
			}
			if diff := cmp.Diff(tc.calls, calls); diff != "" {
				t.Errorf("apt-get, -want +got:\n%s", diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	needs := []Need{
		{Program: "sh", Package: "dash"},
		{Program: "no-such-program", Package: "nothing"},
		{Program: "no-such-program-either", Package: "nothing"},
		{File: "/no/such/file", Package: "files"},
	}
	if diff := cmp.Diff([]string{"nothing", "files"}, Missing(needs)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestThis(t *testing.T) {
	fresh, built := This(false, "/"), This(true, "/")
	if fresh.MinFree <= built.MinFree || len(fresh.Needs) <= len(built.Needs) {
		t.Errorf("a fresh machine needs as little as one where all is built: %+v, %+v", fresh, built)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a script
		t.Fatal(err)
	}
}
