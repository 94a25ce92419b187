package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseMountInfo(t *testing.T) {
	const table = `22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 7:3 / /var/lib/a\040b/globalmount ro,relatime shared:7 master:2 - ext4 /dev/loop3 rw
91 22 0:5 /loop4 /run/publish/pod rw - devtmpfs udev rw,size=1k
`
	want := []MountPoint{
		{Path: "/", Dev: unix.Mkdev(253, 0), Root: "/", FSType: "ext4"},
		{Path: "/var/lib/a b/globalmount", Dev: unix.Mkdev(7, 3), Root: "/", FSType: "ext4", ReadOnly: true},
		{Path: "/run/publish/pod", Dev: unix.Mkdev(0, 5), Root: "/loop4", FSType: "devtmpfs"},
	}
	got, err := parseMountInfo(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for _, line := range []string{"short", "1 2 x:y / / rw - ext4 d rw", "1 2 3:4 / / rw shared:1"} {
		if _, err := parseMountInfo(strings.NewReader(line)); err == nil {
			t.Errorf("%q: want an error", line)
		}
	}
}

func TestProbe(t *testing.T) {
	at := func(offset int, magic string) []byte { return append(make([]byte, offset), magic...) }
	cases := map[string]struct {
		head []byte
		want FSKind
		err  error
	}{
		"Empty":    {head: make([]byte, 4096)},
		"Nothing":  {},
		"Ext4":     {head: at(1080, "\x53\xef"), want: Ext4},
		"XFS":      {head: at(0, "XFSB"), want: XFS},
		"Foreign":  {head: at(512, "data"), err: ErrForeignData},
		"ShortExt": {head: at(1080, "\x53"), err: ErrForeignData},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := probe(tc.head)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("want %q, %v, got %q, %v", tc.want, tc.err, got, err)
			}
		})
	}
}

// TestCopyKeepsHoles copies data between holes into a larger image.
func TestCopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	const size = 64 << 20
	if err := Create(source, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(source, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("sluice"), 1000)
	for _, at := range []int64{0, 20 << 20, size - int64(len(data))} {
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), source, target, 2*size); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2*size || !bytes.Equal(got[:size], want) || len(bytes.Trim(got[size:], "\x00")) > 0 {
		t.Error("want the source's content, and nothing after it")
	}
	var st unix.Stat_t
	if err := unix.Stat(target, &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; used > 1<<20 {
		t.Errorf("want holes kept, got %d bytes in use", used)
	}
}
