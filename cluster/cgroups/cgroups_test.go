package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMounts(t *testing.T) {
	cases := map[string]struct {
		reason, mountinfo string
		want              []Hierarchy
	}{
		"version 1 beside 2": {
			reason: "every hierarchy counts once, with its controllers or its name",
			mountinfo: `30 24 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
35 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
`,
			want: []Hierarchy{
				{Dir: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
				{Dir: "/sys/fs/cgroup/cpuset", Controllers: []string{"cpuset"}},
				{Dir: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
				{Dir: "/sys/fs/cgroup/unified", Version2: true},
			},
		},
		"version 2 alone": {
			reason:    "as on a current Debian",
			mountinfo: "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			want:      []Hierarchy{{Dir: "/sys/fs/cgroup", Version2: true}},
		},
		"none": {
			reason:    "a broken line is nothing",
			mountinfo: "30 24\n\n31 24 0:3 / /proc rw - proc proc rw\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := parseMounts(strings.NewReader(tc.mountinfo))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s; -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCreateInheritsCpuset(t *testing.T) {
	dir := t.TempDir()
	h := Hierarchy{Dir: dir, Controllers: []string{"cpuset"}}
	write(t, filepath.Join(dir, "cpuset.cpus"), "0-1\n")
	write(t, filepath.Join(dir, "cpuset.mems"), "0\n")
	for range 2 { // it may exist
		if err := h.create(Root("a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.create(NodeRoot("a", "node1")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "sluice-a", "node1", "cpuset.cpus")); got != "0-1\n" {
		t.Errorf("processors: got %q, want those of the top", got)
	}
}

func TestCreateHandsControllersDown(t *testing.T) {
	dir := t.TempDir()
	h := Hierarchy{Dir: dir, Version2: true}
	write(t, filepath.Join(dir, "cgroup.controllers"), "cpu memory\n")
	write(t, filepath.Join(dir, "cgroup.subtree_control"), "")
	if err := h.create(Root("a")); err != nil {
		t.Fatal(err)
	}
	// In a plain file the last write stays.
	if got := read(t, filepath.Join(dir, "cgroup.subtree_control")); got != "+memory" {
		t.Errorf("handed down: got %q, want each controller in turn", got)
	}
}

func TestRemoveOfNothing(t *testing.T) {
	if err := Remove(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
