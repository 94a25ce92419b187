package http_test

import (
	"bytes"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/source/http"
)

func TestResume(t *testing.T) {
	other := bytes.Replace(data, []byte("0123"), []byte("3210"), 1)
	const half = 2 << 20
	whole := func(b []byte) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
		}
	}
	cases := map[string]struct {
		reason string
		// header of every answer, and what answers come after one that breaks.
		header map[string]string
		later  []nethttp.HandlerFunc
		digest string
		fails  string
		// ranges that were asked for.
		ranges []string
	}{
		"Range": {
			reason: "a server that knows ranges and versions sends the rest", header: map[string]string{"ETag": `"1"`},
			later: []nethttp.HandlerFunc{whole(data)}, ranges: []string{"", `bytes=2097152- "1"`},
		},
		"Restart": {
			reason: "one that does not sends all again, and what was there is left out",
			later:  []nethttp.HandlerFunc{func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, data, len(data)) }}, ranges: []string{"", ""},
		},
		"WeakTag": {
			reason: "a weak tag proves nothing about bytes", header: map[string]string{"ETag": `W/"1"`},
			later: []nethttp.HandlerFunc{whole(data)}, ranges: []string{"", ""},
		},
		"Busy": {
			reason: "a server that is busy in between is asked again", header: map[string]string{"ETag": `"1"`},
			later: []nethttp.HandlerFunc{
				func(w nethttp.ResponseWriter, _ *nethttp.Request) {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(nethttp.StatusServiceUnavailable)
				},
				whole(data),
			},
			ranges: []string{"", `bytes=2097152- "1"`, `bytes=2097152- "1"`},
		},
		"NewVersion": {
			reason: "another version is not the rest of this one", header: map[string]string{"ETag": `"1"`},
			later: []nethttp.HandlerFunc{func(w nethttp.ResponseWriter, r *nethttp.Request) {
				w.Header().Set("ETag", `"2"`)
				whole(other)(w, r)
			}},
			fails: worker.ReasonTruncated, ranges: []string{"", `bytes=2097152- "1"`},
		},
		"SilentlyNew": {
			reason: "nor is one that only its bytes tell", later: []nethttp.HandlerFunc{whole(other)},
			fails: worker.ReasonTruncated, ranges: []string{"", ""},
		},
		"Vanished": {
			reason: "a file that vanishes was not missing", header: map[string]string{"ETag": `"1"`},
			later: []nethttp.HandlerFunc{func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(nethttp.StatusNotFound) }},
			fails: worker.ReasonTruncated, ranges: []string{"", `bytes=2097152- "1"`},
		},
		"WrongPart": {
			reason: "a server that sends another part", header: map[string]string{"ETag": `"1"`},
			later: []nethttp.HandlerFunc{func(w nethttp.ResponseWriter, _ *nethttp.Request) {
				w.Header().Set("Content-Range", "bytes 0-5/6")
				w.WriteHeader(nethttp.StatusPartialContent)
				_, _ = w.Write([]byte("012345"))
			}},
			fails: worker.ReasonTruncated, ranges: []string{"", `bytes=2097152- "1"`},
		},
		"Unjoined": {
			reason: "two halves that do not fit are found by the digest", header: map[string]string{"ETag": `"1"`}, digest: sum512(other),
			later: []nethttp.HandlerFunc{whole(data)}, fails: worker.ReasonDigestMismatch, ranges: []string{"", `bytes=2097152- "1"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var ranges []string
			s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
				ranges = append(ranges, strings.TrimSpace(r.Header.Get("Range")+" "+r.Header.Get("If-Range")))
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				switch n := len(ranges); {
				case n == 1:
					send(w, data, half)
				case n-2 < len(tc.later):
					tc.later[n-2](w, r)
				default:
					w.WriteHeader(nethttp.StatusInternalServerError)
				}
			})
			_, target, err := fill(t, http.Options{URL: s.URL + "/f", Addresses: loopback, Digest: tc.digest}, runner.Options{ContinueIfMissing: true})
			if diff := cmp.Diff(tc.ranges, ranges); diff != "" {
				t.Errorf("%s: requests: -want +got\n%s", tc.reason, diff)
			}
			tree := movertest.Tree(t, target)
			if tc.fails == "" {
				if err != nil || tree["f"] != string(data) {
					t.Errorf("%s: Run = %v, %d bytes", tc.reason, err, len(tree["f"]))
				}
				return
			}
			if reason, _ := mover.Classify(err); err == nil || reason != tc.fails || len(tree) > 0 {
				t.Errorf("%s: Run = %v (%s), want %s", tc.reason, err, reason, tc.fails)
			}
		})
	}
}

// TestResumeByTime uses the time of a file where it has no tag.
func TestResumeByTime(t *testing.T) {
	modified := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	var requests atomic.Int64
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("Last-Modified", modified.Format(nethttp.TimeFormat))
		if requests.Add(1) == 1 {
			send(w, data, 2<<20)
		}
		if r.Header.Get("If-Range") != modified.Format(nethttp.TimeFormat) {
			t.Errorf("If-Range = %q, want the time of the file", r.Header.Get("If-Range"))
		}
		nethttp.ServeContent(w, r, "", modified, bytes.NewReader(data))
	})
	_, target, err := fill(t, http.Options{URL: s.URL + "/f", Addresses: loopback}, runner.Options{})
	if err != nil || movertest.Tree(t, target)["f"] != string(data) {
		t.Errorf("Run = %v, want the whole file", err)
	}
}
