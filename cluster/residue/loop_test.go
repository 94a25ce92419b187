package residue

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
)

func TestOurs(t *testing.T) {
	all := []disk.Loop{
		{Path: "/dev/loop0", Backing: "/home/me/disk.img"},
		{Path: "/dev/loop1", Backing: "/run/sluice-cluster/sluice-storage-a-123456/volumes/v.img"},
		{Path: "/dev/loop2", Backing: "/sluice-storage-a-123456/volumes/w.img (deleted)"},
		{Path: "/dev/loop3", Backing: "/sluice-storage-a-123456-b/volumes/v.img"},
		{Path: "/dev/loop4", Backing: "/dev/deep"},
		{Path: "/dev/loop5", Backing: "/"},
	}
	// loop5 is on loop1's node, and loop4 on loop5's.
	nodes := map[string]file{"/dev/loop0": {6, 90}, "/dev/loop1": {6, 91}, "/dev/loop5": {6, 95}}
	backing := map[string]file{"/dev/loop0": {8, 1}, "/dev/loop1": {8, 2}, "/dev/loop4": {6, 95}, "/dev/loop5": {6, 91}}
	look := func(m map[string]file) func(string) (file, bool) {
		return func(path string) (file, bool) { f, ok := m[path]; return f, ok }
	}
	cases := map[string]struct {
		reason, id string
		want       []string
	}{
		"one cluster": {
			reason: "its files, also unlinked or without a mount, and devices on its devices; no other cluster's whose ID begins alike",
			id:     "a-123456",
			want:   []string{"/dev/loop1", "/dev/loop2", "/dev/loop5", "/dev/loop4"},
		},
		"all clusters": {
			reason: "but nobody else's",
			want:   []string{"/dev/loop1", "/dev/loop2", "/dev/loop3", "/dev/loop5", "/dev/loop4"},
		},
		"another": {
			reason: "it has none",
			id:     "b-123456",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range ours(all, tc.id, look(nodes), look(backing)) {
				got = append(got, l.Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s; -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRemoveNeedsAName(t *testing.T) {
	if err := Remove(Scope{Root: t.TempDir()}); err == nil {
		t.Error("got no error: it would have removed every cluster")
	}
}
