package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/retry"
)

// A pin is what an answer says about the file, to know it again.
type pin struct {
	// etag is strong, or empty.
	etag string
	// modified is the time of the file; validator is that text, if it is good
	// enough to tell two versions apart.
	modified  time.Time
	validator string
	// length in bytes, or -1.
	length int64
	// delimited says that the end of the body is marked although length is -1.
	delimited bool
	// encoding that the server has put on top of the file.
	encoding string
}

// id names the version for people.
func (p pin) id() string {
	if p.etag != "" {
		return p.etag
	}
	return p.validator
}

// condition is what makes a server send the rest of this version only, or
// empty.
func (p pin) condition() string {
	if p.etag != "" {
		return p.etag
	}
	return p.validator
}

// An answer is a response whose body begins at from.
type answer struct {
	pin    pin
	from   int64
	body   *watched
	cancel context.CancelCauseFunc
}

// get asks for the file from byte from on, if it is still the one that was
// pinned; where the server does not know how, the answer is the whole file.
func (s *Source) get(ctx context.Context, from int64, was *pin) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	a, err := s.do(ctx, cancel, from, was)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return a, nil
}

func (s *Source) do(ctx context.Context, cancel context.CancelCauseFunc, from int64, was *pin) (*answer, error) {
	r, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, mover.Permanent(worker.ReasonSourceUnreachable, fmt.Errorf("get %s: the request is malformed", s.name()))
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "sluice-worker")
	if from > 0 && was.condition() != "" {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		r.Header.Set("If-Range", was.condition())
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, s.unreachable(ctx, err)
	}
	a, err := s.answer(response, from, was)
	if err != nil {
		_ = response.Body.Close() // nothing of it is of use
		return nil, err
	}
	a.cancel = cancel
	a.body = watch(ctx, response.Body, s.opts.StallTimeout, cancel)
	return a, nil
}

// answer judges a response.
func (s *Source) answer(r *nethttp.Response, from int64, was *pin) (*answer, error) {
	switch r.StatusCode {
	case nethttp.StatusOK:
		p := pinOf(r)
		if was != nil && (p.length != was.length || p.etag != was.etag) {
			return nil, s.changed()
		}
		return &answer{pin: p}, nil
	case nethttp.StatusPartialContent:
		if was == nil || !rangeFits(r.Header.Get("Content-Range"), from, was.length) {
			return nil, retry.Stop(mover.Retryable(worker.ReasonTruncated, fmt.Errorf("get %s: the server sends another part than asked for", s.name())))
		}
		return &answer{pin: *was, from: from}, nil
	case nethttp.StatusRequestedRangeNotSatisfiable:
		return nil, s.changed()
	default:
		return nil, s.status(r)
	}
}

// changed is the error for a file that became another while it was read. What
// was passed on is of no use then; another attempt gets the new file.
func (s *Source) changed() error {
	return retry.Stop(mover.Retryable(worker.ReasonTruncated, fmt.Errorf("get %s: the file changed while it was read", s.name())))
}

// status turns a status that brings no file into an error.
func (s *Source) status(r *nethttp.Response) error {
	err := fmt.Errorf("get %s: the server answers %d %s", s.name(), r.StatusCode, nethttp.StatusText(r.StatusCode))
	switch code := r.StatusCode; {
	case code == nethttp.StatusNotFound, code == nethttp.StatusGone:
		return mover.Permanent(worker.ReasonSourceMissing, err)
	case code == nethttp.StatusUnauthorized, code == nethttp.StatusForbidden, code == nethttp.StatusProxyAuthRequired:
		return mover.Permanent(worker.ReasonSourceForbidden, err)
	case code == nethttp.StatusNoContent:
		return mover.Permanent(worker.ReasonSourceEmpty, err)
	case code == nethttp.StatusRequestTimeout, code == nethttp.StatusTooEarly, code == nethttp.StatusTooManyRequests, code >= 500:
		err = mover.Retryable(worker.ReasonSourceUnreachable, err)
		if wait, ok := retryAfter(r); ok {
			err = retry.After(wait, err)
		}
		return err
	default:
		return mover.Permanent(worker.ReasonSourceUnreachable, err)
	}
}

// unreachable turns an error of the client into one that may be shown.
func (s *Source) unreachable(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*mover.Error](err); ok {
		return fmt.Errorf("get %s: %w", s.name(), e)
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("get %s: %w", s.name(), cause)
	}
	// The client's error begins with the whole URL.
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	failure := mover.Retryable(worker.ReasonSourceUnreachable, fmt.Errorf("get %s: %w", s.name(), err))
	if certificate(err) {
		return retry.Stop(failure) // it will not be another one in a minute
	}
	return failure
}

// certificate reports whether the server could not prove who it is.
func certificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

func pinOf(r *nethttp.Response) pin {
	p := pin{length: r.ContentLength, delimited: len(r.TransferEncoding) > 0 || r.ProtoMajor > 1}
	if etag := r.Header.Get("ETag"); strings.HasPrefix(etag, `"`) {
		p.etag = etag
	}
	if at, err := nethttp.ParseTime(r.Header.Get("Last-Modified")); err == nil {
		p.modified = at
		// A file can change twice in a second: RFC 9110, section 8.8.2.2.
		if now, err := nethttp.ParseTime(r.Header.Get("Date")); err == nil && now.Sub(at) >= time.Second {
			p.validator = r.Header.Get("Last-Modified")
		}
	}
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		p.encoding = "gz"
	default:
		p.encoding = encoding
	}
	return p
}

// rangeFits reads "bytes from-to/length" and compares it with what was asked.
func rangeFits(text string, from, length int64) bool {
	text, ok := strings.CutPrefix(text, "bytes ")
	if !ok {
		return false
	}
	part, whole, _ := strings.Cut(text, "/")
	first, last, _ := strings.Cut(part, "-")
	a, errA := strconv.ParseInt(first, 10, 64)
	b, errB := strconv.ParseInt(last, 10, 64)
	if errA != nil || errB != nil || a != from {
		return false
	}
	if length < 0 {
		return true
	}
	return b == length-1 && (whole == "*" || whole == strconv.FormatInt(length, 10))
}

// retryAfter reads the wait that a server asks for.
func retryAfter(r *nethttp.Response) (time.Duration, bool) {
	text := r.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := nethttp.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}
