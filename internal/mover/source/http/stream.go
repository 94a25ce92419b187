package http

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/retry"
)

const (
	// maxVain is how often a connection may break in a row without having
	// brought vainSize bytes.
	maxVain  = 5
	vainSize = 1 << 20
	// maxRestarts is how often a file may be read from its start again, because
	// the server cannot go on in the middle.
	maxRestarts = 3
	// maxRest bounds what is read for nothing but the digest of a file whose
	// length is unknown.
	maxRest = 1 << 30
)

// errStalled is the cause of a request that was ended because no data came.
var errStalled = errors.New("no data came for too long")

// stream reads a file through as many requests as it takes. When a connection
// breaks, the next one goes on at the same byte; a server that cannot do that
// sends the file again, and what was passed on already is compared and left
// out. It is an error before io.EOF if the file is not as long as announced or
// has another digest.
type stream struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	source *Source
	pin    pin
	now    *answer
	n      int64
	// passed is a sum of what was passed on, to know it again. It need not
	// withstand an attack: the digest does.
	passed maphash.Hash
	hash   hash.Hash
	// since counts the bytes of this connection, vain and restarts what maxVain
	// and maxRestarts bound.
	since          int64
	vain, restarts int
	err            error
}

func newStream(ctx context.Context, s *Source, first *answer) *stream {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &stream{ctx: ctx, cancel: cancel, source: s, pin: first.pin, now: first}
	// The first request was made before there was a stream.
	context.AfterFunc(ctx, func() { first.cancel(context.Cause(ctx)) })
	// The sink compares the sum of a single file itself.
	if s.digest.name != "" && (s.opts.Extract != nil || s.digest.name != sha256Name) {
		st.hash = s.digest.make()
	}
	return st
}

// Read implements io.Reader.
func (st *stream) Read(p []byte) (int, error) {
	for st.err == nil {
		n, err := st.readNow(p)
		if err != nil {
			st.drop()
			st.err = st.next(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, st.err
}

// readNow reads from the connection there is, or makes a new one.
func (st *stream) readNow(p []byte) (int, error) {
	if st.now == nil {
		a, err := retry.Do(st.ctx, st.source.opts.Retry, st.resume)
		if err != nil {
			return 0, &final{err}
		}
		st.now, st.since = a, 0
	}
	n, err := st.now.body.Read(p)
	if st.pin.length >= 0 && st.n+int64(n) > st.pin.length {
		return 0, &final{st.fail(worker.ReasonDigestMismatch, true, errors.New("more came than announced"))}
	}
	if n > 0 {
		_, _ = st.passed.Write(p[:n]) // never fails
		if st.hash != nil {
			_, _ = st.hash.Write(p[:n]) // never fails
		}
		st.n += int64(n)
		st.since += int64(n)
		st.source.transferred.Store(st.n)
	}
	return n, err
}

// final is an error that no further connection mends.
type final struct{ error }

// next decides what comes after an error of reading: nil for another
// connection, io.EOF for the end.
func (st *stream) next(err error) error {
	if f, ok := errors.AsType[*final](err); ok {
		return f.error
	}
	if cause := context.Cause(st.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) && (st.pin.length < 0 || st.n == st.pin.length) {
		return st.end()
	}
	if st.since < vainSize {
		st.vain++
	} else {
		st.vain = 0
	}
	if st.vain >= maxVain {
		return st.fail(worker.ReasonTruncated, false, errors.New("the connection breaks again and again"))
	}
	st.source.opts.Log.Warn("connection broken", "url", st.source.name(), "bytes", st.n, "error", err)
	return nil
}

// end judges the whole file.
func (st *stream) end() error {
	if st.n == 0 {
		return mover.Permanent(worker.ReasonSourceEmpty, fmt.Errorf("get %s: the file is empty", st.source.name()))
	}
	if st.hash == nil {
		return io.EOF
	}
	d := st.source.digest
	if got := hex.EncodeToString(st.hash.Sum(nil)); got != d.sum {
		return mover.Permanent(worker.ReasonDigestMismatch,
			fmt.Errorf("get %s: digest is %s:%s, want %s:%s", st.source.name(), d.name, got, d.name, d.sum))
	}
	return io.EOF
}

// resume opens a connection that goes on at byte n.
func (st *stream) resume(ctx context.Context) (*answer, error) {
	a, err := st.source.get(ctx, st.n, &st.pin)
	switch reason, _ := mover.Classify(err); {
	case err == nil:
	case reason == worker.ReasonSourceMissing, reason == worker.ReasonSourceEmpty:
		// It was there a moment ago: what that means is for the next attempt.
		return nil, st.source.changed()
	default:
		return nil, err
	}
	if a.from == st.n {
		return a, nil
	}
	if err := st.skip(a); err != nil {
		a.body.close()
		a.cancel(nil)
		return nil, err
	}
	return a, nil
}

// skip reads over what was passed on before, if it is the same.
func (st *stream) skip(a *answer) error {
	if st.restarts++; st.restarts > maxRestarts {
		return retry.Stop(st.fail(worker.ReasonTruncated, false, errors.New("the server cannot go on in the middle")))
	}
	var again maphash.Hash
	again.SetSeed(st.passed.Seed())
	n, err := io.Copy(&again, io.LimitReader(a.body, st.n))
	if err == nil && n < st.n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return st.fail(worker.ReasonTruncated, false, err)
	}
	if again.Sum64() != st.passed.Sum64() {
		return st.source.changed()
	}
	return nil
}

// fail makes an error that says how far the file was read.
func (st *stream) fail(reason string, permanent bool, err error) error {
	whole := "an unknown number of"
	if st.pin.length >= 0 {
		whole = fmt.Sprint(st.pin.length)
	}
	return &mover.Error{
		Reason: reason, Permanent: permanent,
		Err: fmt.Errorf("get %s: %d of %s bytes read: %w", st.source.name(), st.n, whole, err),
	}
}

// rest reads what is left, for the judgement at the end.
func (st *stream) rest(ctx context.Context) error {
	if st.stopped() {
		return nil
	}
	left := int64(maxRest)
	if st.pin.length >= 0 {
		left = st.pin.length - st.n + 1
	}
	defer context.AfterFunc(ctx, st.stop)()
	_, err := io.Copy(io.Discard, io.LimitReader(struct{ io.Reader }{st}, left))
	return err //nolint:wrapcheck // it says what it is about
}

// failure returns why the stream has ended before its end, or nil.
func (st *stream) failure() error {
	if st.err == nil || errors.Is(st.err, io.EOF) || errors.Is(st.err, errStopped) {
		return nil
	}
	return st.err
}

// errStopped is the cause of a stream that nobody wants any more.
var errStopped = errors.New("reading was stopped")

// stop makes a Read that waits return.
func (st *stream) stop() { st.cancel(errStopped) }

func (st *stream) stopped() bool { return st.ctx.Err() != nil }

// drop ends the connection there is.
func (st *stream) drop() {
	if st.now != nil {
		st.now.body.close()
		st.now.cancel(nil)
		st.now = nil
	}
}

// watched is a body that ends its request when no data comes.
type watched struct {
	ctx   context.Context
	body  io.ReadCloser
	limit time.Duration
	timer *time.Timer
}

func watch(ctx context.Context, body io.ReadCloser, limit time.Duration, cancel context.CancelCauseFunc) *watched {
	w := &watched{ctx: ctx, body: body, limit: limit, timer: time.AfterFunc(limit, func() { cancel(errStalled) })}
	w.timer.Stop()
	return w
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.limit)
	n, err := w.body.Read(p)
	w.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(w.ctx), errStalled) {
		err = errStalled
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}

// close ends the body; what it could still say is of no interest.
func (w *watched) close() {
	w.timer.Stop()
	_ = w.body.Close()
}
