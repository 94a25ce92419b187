package movertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// deviceSize is the size of the devices of the tests: more than one buffer and
// no multiple of one.
const deviceSize = 5<<20 + 512

// DeviceSink holds a sink for devices to its contract. open returns a new sink
// for the device target, which is a file of a fixed size.
func DeviceSink(t *testing.T, open func(t *testing.T, target string) mover.Sink) {
	device := func(t *testing.T) (mover.Sink, string) {
		t.Helper()
		target := filepath.Join(t.TempDir(), "device")
		if err := os.WriteFile(target, make([]byte, deviceSize), 0o600); err != nil {
			t.Fatal(err)
		}
		return open(t, target), target
	}
	whole := strings.Repeat("0123456789abcdef", deviceSize/16)
	cases := map[string]struct {
		reason    string
		entry     mover.Entry
		content   string
		want      string
		permanent bool
	}{
		"Small":        {reason: "the rest of the device stays", entry: mover.Entry{Path: "f", Size: 5}, content: "hello"},
		"Whole":        {reason: "a device can be filled to its end", entry: mover.Entry{Path: "f", Size: mover.Unknown}, content: whole},
		"Name":         {reason: "the name of the file does not matter", entry: mover.Entry{Path: "../../etc/passwd", Size: 1}, content: "x"},
		"TooLarge":     {reason: "an announced size is compared before writing", entry: mover.Entry{Path: "f", Size: deviceSize + 1}, content: whole + "x", want: worker.ReasonVolumeTooSmall, permanent: true},
		"FoundTooLong": {reason: "an unknown size is compared while writing", entry: mover.Entry{Path: "f", Size: mover.Unknown}, content: whole + "x", want: worker.ReasonVolumeTooSmall, permanent: true},
		"Short":        {reason: "a connection that ends early is not the end of the file", entry: mover.Entry{Path: "f", Size: 9}, content: "short", want: worker.ReasonTruncated},
		"Digest":       {reason: "an error page has another digest", entry: mover.Entry{Path: "f", Size: mover.Unknown, Digest: digest("data")}, content: "<html>", want: worker.ReasonDigestMismatch, permanent: true},
		"Directory":    {reason: "a device has no directories", entry: mover.Entry{Path: "d", Kind: mover.Directory}, want: worker.ReasonUnsupportedFormat, permanent: true},
		"Symlink":      {reason: "a device has no links", entry: mover.Entry{Path: "l", Kind: mover.Symlink, Link: "f"}, want: worker.ReasonUnsupportedFormat, permanent: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, target := device(t)
			err := put(t, s, tc.entry, tc.content)
			if tc.want != "" {
				if reason, permanent := mover.Classify(err); err == nil || reason != tc.want || permanent != tc.permanent {
					t.Errorf("%s: Put = %v (%s, permanent %t), want %s, %t", tc.reason, err, reason, permanent, tc.want, tc.permanent)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: Put = %v", tc.reason, err)
			}
			got, err := s.Finish(t.Context())
			if err != nil {
				t.Fatalf("Finish: %v", err)
			}
			want := mover.Summary{Bytes: int64(len(tc.content)), Files: 1, Digest: digest(tc.content)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: Finish: -want +got\n%s", tc.reason, diff)
			}
			content, err := os.ReadFile(target) //nolint:gosec // a path of the test's own
			if err != nil {
				t.Fatal(err)
			}
			if len(content) != deviceSize || string(content[:len(tc.content)]) != tc.content ||
				strings.Trim(string(content[len(tc.content):]), "\x00") != "" {
				t.Errorf("%s: the device holds other bytes than were put", tc.reason)
			}
		})
	}
	t.Run("Second", func(t *testing.T) {
		s, _ := device(t)
		mustPut(t, s, mover.Entry{Path: "f", Size: 1}, "x")
		refused(t, "a second file", put(t, s, mover.Entry{Path: "g", Size: 1}, "y"))
	})
}
