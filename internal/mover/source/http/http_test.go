package http_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/archive"
	"github.com/sluice-dev/sluice/internal/mover/egress"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/retry"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/http"
)

// loopback lets tests talk to their own servers.
var loopback = egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// data is a file that takes several reads.
var data = []byte(movertest.Content("0123456789abcdef", 3<<20+11))

func sum256(b []byte) string { s := sha256.Sum256(b); return "sha256:" + hex.EncodeToString(s[:]) }
func sum512(b []byte) string { s := sha512.Sum512(b); return "sha512:" + hex.EncodeToString(s[:]) }

// quick retries without waiting.
func quick() retry.Policy {
	return retry.Policy{First: time.Microsecond, Longest: time.Microsecond, Budget: 200 * time.Millisecond}
}

// fill copies what opts say into a new directory.
func fill(t *testing.T, opts http.Options, run runner.Options) (worker.Result, string, error) {
	t.Helper()
	target := t.TempDir()
	to, err := dir.Open(target, dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if opts.Extract != nil {
		opts.Extract.Scratch = to.Scratch
	}
	if opts.Retry.First == 0 {
		opts.Retry = quick()
	}
	from, err := http.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	got, err := runner.Run(t.Context(), from, to, run)
	return got, target, err
}

func serve(t *testing.T, handler nethttp.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// send writes the first n bytes of b under a header that announces all of b.
func send(w nethttp.ResponseWriter, b []byte, n int) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b[:n])
	if n < len(b) {
		flush(w)
		panic(nethttp.ErrAbortHandler)
	}
}

func flush(w nethttp.ResponseWriter) { _ = nethttp.NewResponseController(w).Flush() }

func TestFile(t *testing.T) {
	packed := movertest.Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Size: 3})
	zipped := movertest.Zip(t, movertest.ZipEntry{Name: "d/f", Body: "zip"})
	page := "<html>not here</html>"
	say := func(code int) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(code) }
	}
	all := func(b []byte) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, b, len(b)) }
	}
	cases := map[string]struct {
		reason    string
		serve     nethttp.HandlerFunc
		opts      http.Options
		run       runner.Options
		want      map[string]string
		fails     string
		permanent bool
		says      string
		requests  int64 // at most; 0 is 1
	}{
		"Plain":     {reason: "a file lands under its name", serve: all(data), want: map[string]string{"file.bin": string(data)}},
		"Named":     {reason: "or under another", serve: all(data), opts: http.Options{FileName: "d/x"}, want: map[string]string{"d": "dir", "d/x": string(data)}},
		"SHA256":    {reason: "a digest that fits", serve: all(data), opts: http.Options{Digest: sum256(data)}, want: map[string]string{"file.bin": string(data)}},
		"SHA512":    {reason: "another algorithm", serve: all(data), opts: http.Options{Digest: strings.ToUpper(sum512(data)[:6]) + "x"}, fails: "options"},
		"SHA512Fit": {reason: "another algorithm", serve: all(data), opts: http.Options{Digest: sum512(data)}, want: map[string]string{"file.bin": string(data)}},
		"WrongDigest": {
			reason: "another file than expected is fetched once", serve: all([]byte(page)), opts: http.Options{Digest: sum256(data)},
			want: map[string]string{}, fails: worker.ReasonDigestMismatch, permanent: true,
		},
		"WrongDigest512": {
			reason: "whatever the algorithm", serve: all([]byte(page)), opts: http.Options{Digest: sum512(data)},
			want: map[string]string{}, fails: worker.ReasonDigestMismatch, permanent: true,
		},
		"PageForArchive": {
			reason: "an error page instead of an archive is the wrong file before it is no archive", serve: all([]byte(page)),
			opts: http.Options{Digest: sum256(packed), Extract: &archive.Options{}}, fails: worker.ReasonDigestMismatch, permanent: true,
		},
		"PageNoDigest": {
			reason: "without a digest it is no archive", serve: all([]byte(page)),
			opts: http.Options{Extract: &archive.Options{}}, fails: worker.ReasonUnsupportedFormat, permanent: true, says: "web page",
		},
		"Tar":         {reason: "what is in an archive lands", serve: all(packed), opts: http.Options{Digest: sum256(packed), Extract: &archive.Options{}}, want: map[string]string{"d": "dir", "d/f": "d/f"}},
		"Zip":         {reason: "of either kind", serve: all(zipped), opts: http.Options{Digest: sum512(zipped), Extract: &archive.Options{}}, want: map[string]string{"d": "dir", "d/f": "zip"}},
		"TarDigest":   {reason: "a good archive that is another", serve: all(packed), opts: http.Options{Digest: sum256(data), Extract: &archive.Options{}}, fails: worker.ReasonDigestMismatch, permanent: true},
		"Truncated":   {reason: "a body that ends early again and again", serve: func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, data, len(data)-5) }, want: map[string]string{}, fails: worker.ReasonTruncated, requests: 10},
		"TruncatedAr": {reason: "the same of an archive", serve: func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, packed, 700) }, opts: http.Options{Extract: &archive.Options{}}, fails: worker.ReasonTruncated, requests: 10},
		"Missing":     {reason: "the server has no such file", serve: say(404), want: map[string]string{}, fails: worker.ReasonSourceMissing, permanent: true, says: "404 Not Found"},
		"Gone":        {reason: "or no more", serve: say(410), fails: worker.ReasonSourceMissing, permanent: true},
		"Forbidden":   {reason: "the server does not want to", serve: say(403), fails: worker.ReasonSourceForbidden, permanent: true},
		"Login":       {reason: "or not without credentials", serve: say(401), fails: worker.ReasonSourceForbidden, permanent: true},
		"Empty":       {reason: "no byte", serve: all(nil), fails: worker.ReasonSourceEmpty, permanent: true},
		"EmptyChunks": {reason: "no byte, as is found out at the end", serve: func(w nethttp.ResponseWriter, _ *nethttp.Request) { flush(w) }, fails: worker.ReasonSourceEmpty, permanent: true},
		"NoContent":   {reason: "no byte, as the server says", serve: say(204), fails: worker.ReasonSourceEmpty, permanent: true},
		"BadRequest":  {reason: "what the server will not answer next time either", serve: say(400), fails: worker.ReasonSourceUnreachable, permanent: true},
		"Broken":      {reason: "a server that fails is tried until the budget is spent", serve: say(500), want: map[string]string{}, fails: worker.ReasonSourceUnreachable, requests: 1 << 40},
		"Teapot":      {reason: "a redirect to nowhere", serve: say(304), fails: worker.ReasonSourceUnreachable, permanent: true},
		"Chunked": {
			reason: "a body whose end is marked needs no length",
			serve: func(w nethttp.ResponseWriter, _ *nethttp.Request) {
				flush(w)
				_, _ = w.Write(data)
			},
			want: map[string]string{"file.bin": string(data)},
		},
		"NoEnd":       {reason: "a body that just ends could be cut", serve: closing(data), fails: worker.ReasonTruncated, permanent: true, says: "set its digest"},
		"NoEndDigest": {reason: "unless a digest tells", serve: closing(data), opts: http.Options{Digest: sum256(data)}, want: map[string]string{"file.bin": string(data)}},
		"Encoded": {
			reason: "a server that compresses unasked", fails: worker.ReasonUnsupportedFormat, permanent: true,
			serve: func(w nethttp.ResponseWriter, _ *nethttp.Request) {
				w.Header().Set("Content-Encoding", "br")
				send(w, data, len(data))
			},
		},
		"Continue":      {reason: "nothing there, and that is fine", serve: say(404), run: runner.Options{ContinueIfMissing: true}, want: map[string]string{}},
		"ContinueEmpty": {reason: "the same for no byte", serve: all(nil), run: runner.Options{ContinueIfMissing: true}, want: map[string]string{}},
		"ContinueNoEntry": {
			reason: "and for no entry", serve: all(movertest.Tar(t)), opts: http.Options{Extract: &archive.Options{}},
			run: runner.Options{ContinueIfMissing: true}, want: map[string]string{},
		},
		"ContinueBroken": {
			reason: "a server that cannot be asked is not one that has nothing", serve: say(500), run: runner.Options{ContinueIfMissing: true},
			fails: worker.ReasonSourceUnreachable, requests: 1 << 40,
		},
		"ContinueForbidden": {reason: "nor one that does not want to", serve: say(403), run: runner.Options{ContinueIfMissing: true}, fails: worker.ReasonSourceForbidden, permanent: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) { requests.Add(1); tc.serve(w, r) })
			tc.opts.URL, tc.opts.Addresses = s.URL+"/dir/file.bin?signature=s3cret", loopback
			if tc.fails == "options" {
				if _, err := http.New(tc.opts); err == nil {
					t.Errorf("New with digest %q = nil, want an error", tc.opts.Digest)
				}
				return
			}
			got, target, err := fill(t, tc.opts, tc.run)
			if n := requests.Load(); n > max(tc.requests, 1) {
				t.Errorf("%s: %d requests, want at most %d", tc.reason, n, max(tc.requests, 1))
			}
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, movertest.Tree(t, target)); diff != "" {
					t.Errorf("%s: the volume holds something else", tc.reason)
				}
			}
			if tc.fails == "" {
				if err != nil {
					t.Fatalf("%s: Run = %v", tc.reason, err)
				}
				if tc.run.ContinueIfMissing != (got.Message != "") || tc.run.ContinueIfMissing == (got.Digest != "") {
					t.Errorf("%s: Run = %+v", tc.reason, got)
				}
				return
			}
			reason, permanent := mover.Classify(err)
			if err == nil || reason != tc.fails || permanent != tc.permanent {
				t.Fatalf("%s: Run = %v (%s, permanent %t), want %s, %t", tc.reason, err, reason, permanent, tc.fails, tc.permanent)
			}
			if !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: Run = %v, want it to say %q and no secret", tc.reason, err, tc.says)
			}
		})
	}
}

// closing sends b and ends the connection, as servers did in 1996.
func closing(b []byte) nethttp.HandlerFunc {
	return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		c, out, err := nethttp.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprint(out, "HTTP/1.0 200 OK\r\n\r\n")
		_, _ = out.Write(b)
		_ = out.Flush()
		_ = c.Close()
	}
}

func TestProgress(t *testing.T) {
	packed := movertest.Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 2 << 20})
	s := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, packed, len(packed)) })
	for name, tc := range map[string]struct {
		extract *archive.Options
		total   int64
	}{"File": {nil, int64(len(packed))}, "Archive": {&archive.Options{}, int64(len(packed))}} {
		t.Run(name, func(t *testing.T) {
			var last worker.Progress
			hear := mover.ProgressFunc(func(p worker.Progress) {
				if p.Bytes < last.Bytes || p.TotalBytes != tc.total {
					t.Errorf("progress %+v after %+v", p, last)
				}
				last = p
			})
			_, _, err := fill(t, http.Options{URL: s.URL, Addresses: loopback, Extract: tc.extract}, runner.Options{Progress: hear})
			if err != nil || last.Files != 1 || last.Bytes != tc.total {
				t.Errorf("last progress %+v, %v; want %d bytes", last, err, tc.total)
			}
		})
	}
}

func TestVolumeTooSmall(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Length", "9000000000000000000")
		_, _ = w.Write([]byte("x"))
		flush(w)
		panic(nethttp.ErrAbortHandler)
	})
	for _, extract := range []*archive.Options{nil, {}} {
		_, _, err := fill(t, http.Options{URL: s.URL, Addresses: loopback, Extract: extract}, runner.Options{})
		if reason, permanent := mover.Classify(err); err == nil || reason != worker.ReasonVolumeTooSmall || !permanent {
			t.Errorf("Run = %v (%s), want %s before anything is read", err, reason, worker.ReasonVolumeTooSmall)
		}
	}
}

func TestRefusesOptions(t *testing.T) {
	for name, opts := range map[string]http.Options{
		"NoURL": {}, "Scheme": {URL: "ftp://h/f"}, "File": {URL: "file:///etc/passwd"}, "User": {URL: "https://u:s3cret@h/f"},
		"NoHost": {URL: "https:///f"}, "Malformed": {URL: "https://h/%zz?s3cret"}, "Digest": {URL: "https://h", Digest: "md5:00"},
		"ShortDigest": {URL: "https://h", Digest: "sha256:00"}, "Proxy": {URL: "https://h", Proxy: "h:3128"},
		"ProxyScheme": {URL: "https://h", Proxy: "ftp://h:3128"}, "CA": {URL: "https://h", CA: []byte("none")},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := http.New(opts); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("New = %v, %v, want an error without secrets", s, err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/f?signature=s3cret"
	_ = l.Close()
	var log bytes.Buffer
	opts := http.Options{URL: url, Addresses: loopback, Log: slog.New(slog.NewTextHandler(&log, nil))}
	_, _, err = fill(t, opts, runner.Options{ContinueIfMissing: true})
	if reason, permanent := mover.Classify(err); err == nil || reason != worker.ReasonSourceUnreachable || permanent {
		t.Errorf("Run = %v (%s), want %s for now", err, reason, worker.ReasonSourceUnreachable)
	}
	if log.Len() == 0 || strings.Contains(log.String()+err.Error(), "s3cret") {
		t.Errorf("%v\n%s\nwant retries in the log and no secret anywhere", err, log.String())
	}
}

func TestStalled(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	var requests atomic.Int64
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("ETag", `"1"`)
		if requests.Add(1) == 1 {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data[:100])
			flush(w)
			select { // a server that says nothing more, but does not hang up
			case <-hold:
			case <-r.Context().Done():
			}
			return
		}
		nethttp.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	_, target, err := fill(t, http.Options{URL: s.URL + "/f", Addresses: loopback, StallTimeout: 50 * time.Millisecond}, runner.Options{})
	if err != nil {
		t.Fatalf("Run = %v, want the rest over another connection", err)
	}
	if diff := cmp.Diff(string(data), movertest.Tree(t, target)[filepath.Base("f")]); diff != "" {
		t.Error("the file holds something else")
	}
}

func TestBlockedHeaders(t *testing.T) {
	s := serve(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	_, _, err := fill(t, http.Options{URL: s.URL, Addresses: loopback, HeaderTimeout: 20 * time.Millisecond}, runner.Options{})
	if reason, _ := mover.Classify(err); err == nil || reason != worker.ReasonSourceUnreachable {
		t.Errorf("Run = %v (%s), want %s", err, reason, worker.ReasonSourceUnreachable)
	}
}
