// Package http is the source of one file, or of what is in one archive, that a
// web server has.
//
//	GET ──▶ stream ──▶ read ahead ──▶ sink                one file
//	        (resumes,                 ▶ archive ──▶ sink  an archive
//	         length, digest)
//
// The length is always checked, the digest if there is one, before the last
// byte is passed on. A connection that breaks is taken up where it broke, if
// the server proves that it still has the same file. Credentials go to the host
// of the URL alone, and addresses that no source has business with are refused
// on every connection, see package egress.
package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	nethttp "net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/archive"
	"github.com/sluice-dev/sluice/internal/mover/egress"
	"github.com/sluice-dev/sluice/internal/mover/readahead"
	"github.com/sluice-dev/sluice/internal/mover/retry"
)

// Defaults of Options.
const (
	DefaultMaxRedirects   = 10
	DefaultConnectTimeout = 30 * time.Second
	DefaultHeaderTimeout  = 60 * time.Second
	DefaultStallTimeout   = 60 * time.Second
)

// Options of a source. Only URL has no default.
type Options struct {
	// URL of the file: http or https, without user or password.
	URL string
	// Digest that the file must have, as sha256:hex or sha512:hex.
	Digest string
	// FileName on the volume. Default: the last part of the URL's path.
	FileName string
	// FileMode of the file. Default: the sink's.
	FileMode fs.FileMode
	// Extract puts what is in the archive instead of the archive.
	Extract *archive.Options
	// Credentials for the host of the URL.
	Credentials Credentials
	// CA holds certificates in PEM that are trusted beside the system's.
	CA []byte
	// Proxy is the URL of a proxy for all hosts but those of NoProxy, which is
	// a list in the form of the NO_PROXY environment variable.
	Proxy, NoProxy string
	// MaxRedirects that are followed. 0 is DefaultMaxRedirects, less is none.
	MaxRedirects int
	// Addresses that may be talked to.
	Addresses egress.Policy
	// ConnectTimeout bounds connecting, HeaderTimeout the time to an answer,
	// and StallTimeout the time without any data.
	ConnectTimeout, HeaderTimeout, StallTimeout time.Duration
	// Retry says how long a server that fails is tried again.
	Retry retry.Policy
	// Log hears of retries. Default: nobody.
	Log *slog.Logger
}

// Source is one URL.
type Source struct {
	opts   Options
	url    *url.URL
	digest digest
	client *nethttp.Client
	// stream is what Resolve opened and Copy reads.
	stream      *stream
	transferred atomic.Int64
}

var (
	_ mover.Source = (*Source)(nil)
	_ mover.Meter  = (*Source)(nil)
)

// New returns a source. An error says which option is wrong; it holds no
// secret.
func New(opts Options) (*Source, error) {
	u, err := parseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	d, err := parseDigest(opts.Digest)
	if err != nil {
		return nil, err
	}
	if opts.MaxRedirects == 0 {
		opts.MaxRedirects = DefaultMaxRedirects
	}
	opts.ConnectTimeout = orDefault(opts.ConnectTimeout, DefaultConnectTimeout)
	opts.HeaderTimeout = orDefault(opts.HeaderTimeout, DefaultHeaderTimeout)
	opts.StallTimeout = orDefault(opts.StallTimeout, DefaultStallTimeout)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.FileName == "" {
		opts.FileName = path.Base(path.Clean("/" + u.Path))
		if opts.FileName == "/" {
			opts.FileName = "index"
		}
	}
	s := &Source{opts: opts, url: u, digest: d}
	if s.client, err = s.newClient(); err != nil {
		return nil, err
	}
	if opts.Retry.Notify == nil {
		s.opts.Retry.Notify = func(err error, wait time.Duration) {
			opts.Log.Warn("trying again", "error", err, "wait", wait)
		}
	}
	return s, nil
}

// Close ends what Resolve has opened.
func (s *Source) Close() error {
	if s.stream != nil {
		s.stream.drop()
	}
	s.client.CloseIdleConnections()
	return nil
}

// Transferred implements mover.Meter.
func (s *Source) Transferred() int64 { return s.transferred.Load() }

// Resolve implements mover.Source: it asks for the file and keeps the answer,
// whose validators pin what Copy reads.
func (s *Source) Resolve(ctx context.Context) (mover.Revision, error) {
	if err := s.opts.Addresses.CheckHost(s.url.Hostname()); err != nil {
		return mover.Revision{}, fmt.Errorf("get %s: %w", s.name(), err)
	}
	answer, err := retry.Do(ctx, s.opts.Retry, func(ctx context.Context) (*answer, error) { return s.get(ctx, 0, nil) })
	if err != nil {
		return mover.Revision{}, err
	}
	s.stream = newStream(ctx, s, answer)
	pin := answer.pin
	if err := s.judge(pin); err != nil {
		return mover.Revision{}, err
	}
	r := mover.Revision{ID: pin.id()}
	if pin.length > 0 {
		r.Room = pin.length
		if s.opts.Extract != nil {
			r.Transfer = pin.length
		} else {
			r.Bytes, r.Files = pin.length, 1
		}
	}
	return r, nil
}

// judge refuses an answer that cannot become a file.
func (s *Source) judge(p pin) error {
	switch {
	case p.length == 0:
		return mover.Permanent(worker.ReasonSourceEmpty, fmt.Errorf("get %s: the file is empty", s.name()))
	case s.opts.Extract != nil || s.digest.name != "":
		return nil // the archive's end, or the digest, tells whether all is there
	case p.length < 0 && !p.delimited:
		return mover.Permanent(worker.ReasonTruncated,
			fmt.Errorf("get %s: the server says neither how long the file is nor where it ends; set its digest", s.name()))
	case p.encoding != "" && !strings.HasSuffix(strings.ToLower(s.url.Path), "."+p.encoding):
		return mover.Permanent(worker.ReasonUnsupportedFormat,
			fmt.Errorf("get %s: the server sends the file encoded as %q, although asked not to", s.name(), p.encoding))
	default:
		return nil
	}
}

// Copy implements mover.Source.
func (s *Source) Copy(ctx context.Context, to mover.Sink) error {
	if s.stream == nil {
		return errors.New("copy file: it was not resolved")
	}
	ahead := readahead.New(s.stream)
	err := s.copy(ctx, to, ahead)
	if err == nil {
		// The stream judges length and digest at its end: go there.
		_, err = io.Copy(io.Discard, ahead)
	}
	wrong := err != nil && ctx.Err() == nil && s.mayBeWrongFile(err)
	if err != nil && !wrong {
		s.stream.stop() // it may be waiting for data that nobody wants
	}
	if closing := ahead.Close(); err == nil {
		err = closing
	}
	if err == nil {
		return nil
	}
	if failure := s.stream.failure(); failure != nil {
		return failure
	}
	if wrong {
		if mismatch := s.stream.rest(ctx); mismatch != nil && is(mismatch, worker.ReasonDigestMismatch) {
			return mismatch
		}
	}
	return err
}

// mayBeWrongFile reports whether an archive that cannot be read may be another
// file altogether, an error page for example: then its digest says so best.
func (s *Source) mayBeWrongFile(err error) bool {
	return s.opts.Extract != nil && s.digest.name != "" &&
		is(err, worker.ReasonUnsupportedFormat, worker.ReasonTruncated, worker.ReasonSourceEmpty, worker.ReasonSourceMissing)
}

func is(err error, reasons ...string) bool {
	reason, _ := mover.Classify(err)
	return slices.Contains(reasons, reason)
}

func (s *Source) copy(ctx context.Context, to mover.Sink, in io.Reader) error {
	if s.opts.Extract == nil {
		p := s.stream.pin
		e := mover.Entry{Path: s.opts.FileName, Size: p.length, Mode: s.opts.FileMode, ModTime: p.modified}
		if s.digest.name == sha256Name {
			e.Digest = s.opts.Digest // the sink compares it while it writes
		}
		return to.Put(ctx, e, in) //nolint:wrapcheck // the sink's errors are returned unchanged, see mover.Source
	}
	out, err := archive.Extract(ctx, in, to, *s.opts.Extract)
	if out.Skipped > 0 {
		s.opts.Log.Warn("entries left out of the archive", "count", out.Skipped, "first", out.FirstSkipped)
	}
	return err //nolint:wrapcheck // it says what it is about
}

// name is the URL as it may be shown: without its query, which may be a
// signature.
func (s *Source) name() string { return shown(s.url) }

func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// parseURL reads an address. Its errors do not show it: a password may be
// somewhere in it.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, errors.New("read URL: there is none")
	case err != nil:
		return nil, errors.New("read URL: it is malformed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("read URL: its scheme is %q, want http or https", u.Scheme)
	case u.Host == "" || u.Hostname() == "":
		return nil, errors.New("read URL: it names no host")
	case u.User != nil:
		return nil, errors.New("read URL: it holds a user; credentials belong into a Secret")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
