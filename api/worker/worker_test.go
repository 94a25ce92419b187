package worker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
)

func TestParse(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	cases := map[string]struct {
		reason string
		in     string
		want   worker.Result
		ok     bool
	}{
		"Whole": {
			reason: "a result of ours comes back as it was",
			in:     `{"bytes":14,"files":1,"digest":"` + digest + `"}`,
			want:   worker.Result{Bytes: 14, Files: 1, Digest: digest},
			ok:     true,
		},
		"LastLine": {
			reason: "with FallbackToLogsOnError the result is the last line of the log",
			in:     "copying\n{\"reason\":\"SourceEmpty\",\"permanent\":true}\n",
			want:   worker.Result{Reason: "SourceEmpty", Permanent: true},
			ok:     true,
		},
		"UnknownField": {
			reason: "a newer worker may say more",
			in:     `{"bytes":1,"colour":"blue"}`,
			want:   worker.Result{Bytes: 1},
			ok:     true,
		},
		"UnknownReason": {
			reason: "reasons become metric labels, so a worker cannot invent them",
			in:     `{"reason":"x\"} 1\nfoo","message":"m"}`,
			want:   worker.Result{Reason: worker.ReasonWorkerFailed, Message: "m"},
			ok:     true,
		},
		"Hostile": {
			reason: "escapes, newlines and negative numbers do not get through",
			in:     `{"message":"a\u001b[31mred\nb\u0000","bytes":-5,"digest":"sha256:zz"}`,
			want:   worker.Result{Message: "a [31mred b"},
			ok:     true,
		},
		"Text":  {reason: "a plain message is no result", in: "disk full"},
		"Empty": {reason: "no message is no result", in: ""},
		"List":  {reason: "JSON of another shape is no result", in: "[1]"},
		"Large": {reason: "a message beyond the bound is no result", in: `{"message":"` + strings.Repeat("x", worker.MaxResult) + `"}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := worker.Parse([]byte(tc.in))
			if ok != tc.ok {
				t.Fatalf("%s: Parse ok = %t, want %t", tc.reason, ok, tc.ok)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEncodeIsBounded(t *testing.T) {
	for _, message := range []string{strings.Repeat("é", 5000), strings.Repeat("\"<", 5000), strings.Repeat("\xff", 9000)} {
		out, err := worker.Result{Reason: worker.ReasonWorkerFailed, Message: message, Permanent: true}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > worker.MaxResult {
			t.Errorf("result of %d bytes, want at most %d", len(out), worker.MaxResult)
		}
		got, ok := worker.Parse(out)
		if !ok || got.Reason != worker.ReasonWorkerFailed || !got.Permanent || got.Message == "" {
			t.Errorf("Parse(Encode()) = %+v, %t", got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"reason":"SourceEmpty","bytes":3}`))
	f.Add([]byte("log\n{\"message\":\"\\u0007\"}"))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, ok := worker.Parse(message)
		if !ok {
			return
		}
		out, err := got.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, ok := worker.Parse(out)
		if !ok {
			t.Fatalf("Parse(%q) of an encoded result: none", out)
		}
		again.Message, got.Message = "", ""
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("-first +again\n%s", diff)
		}
	})
}

func TestProgressLine(t *testing.T) {
	want := worker.Progress{Bytes: 5, TotalBytes: 10, Files: 1}
	line, err := want.Line()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := worker.ParseProgress(line)
	if !ok {
		t.Fatalf("ParseProgress(%s): none", line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, line := range []string{"", "50 %", `{"bytes":5}`, `{"level":"info"}`} {
		if p, ok := worker.ParseProgress([]byte(line)); ok {
			t.Errorf("ParseProgress(%q) = %+v, want none", line, p)
		}
	}
}

// TestSameWords keeps the words of this package and of the API equal: this one
// cannot import the API, because programs without Kubernetes import it.
func TestSameWords(t *testing.T) {
	for ours, theirs := range map[string]string{
		worker.EnvTarget:               v1alpha1.EnvTarget,
		worker.EnvVolumeMode:           v1alpha1.EnvVolumeMode,
		worker.EnvFiles:                v1alpha1.EnvFiles,
		worker.ReasonSourceUnreachable: v1alpha1.ReasonSourceUnreachable,
		worker.ReasonSourceForbidden:   v1alpha1.ReasonSourceForbidden,
		worker.ReasonSourceMissing:     v1alpha1.ReasonSourceMissing,
		worker.ReasonSourceEmpty:       v1alpha1.ReasonSourceEmpty,
		worker.ReasonTruncated:         v1alpha1.ReasonTruncated,
		worker.ReasonDigestMismatch:    v1alpha1.ReasonDigestMismatch,
		worker.ReasonUnsupportedFormat: v1alpha1.ReasonUnsupportedFormat,
		worker.ReasonVolumeTooSmall:    v1alpha1.ReasonVolumeTooSmall,
		worker.ReasonVolumeNotWritable: v1alpha1.ReasonVolumeNotWritable,
		worker.ReasonSecretNotOffered:  v1alpha1.ReasonSecretNotOffered,
		worker.ReasonAddressNotAllowed: v1alpha1.ReasonAddressNotAllowed,
		worker.ReasonWorkerFailed:      v1alpha1.ReasonWorkerFailed,
	} {
		if ours != theirs {
			t.Errorf("worker says %q, the API %q", ours, theirs)
		}
	}
}

func TestCleanEnd(t *testing.T) {
	long := strings.Repeat("x", 5000) + "\nthe tape is torn\n"
	for name, c := range map[string]struct{ text, want string }{
		"Short":    {text: "one\ttwo\n", want: "one two"},
		"LastLine": {text: long, want: "…" + strings.Repeat("x", 494) + " the tape is torn"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := worker.CleanEnd(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
