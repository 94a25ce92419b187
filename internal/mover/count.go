package mover

import (
	"context"
	"io"

	"github.com/sluice-dev/sluice/api/worker"
)

// Counted is a decorator that reports what is put into a sink to p. total is
// the number of bytes expected, or 0.
func Counted(to Sink, total int64, p Progress) Sink {
	return &counted{Sink: to, p: p, now: worker.Progress{TotalBytes: max(total, 0)}}
}

// Metered is a decorator like Counted that reports the bytes that m read
// instead of those that are put.
func Metered(to Sink, total int64, m Meter, p Progress) Sink {
	return &counted{Sink: to, p: p, meter: m, now: worker.Progress{TotalBytes: max(total, 0)}}
}

type counted struct {
	Sink
	p     Progress
	meter Meter
	now   worker.Progress
}

// Put implements Sink.
func (c *counted) Put(ctx context.Context, e Entry, data io.Reader) error {
	if data != nil {
		data = &countedReader{in: data, c: c}
	}
	if err := c.Sink.Put(ctx, e, data); err != nil {
		return err
	}
	if e.Kind == File {
		c.now.Files++
		c.report(0)
	}
	return nil
}

// report reports n more bytes.
func (c *counted) report(n int) {
	if c.meter != nil {
		c.now.Bytes = c.meter.Transferred()
	} else {
		c.now.Bytes += int64(n)
	}
	c.p.Report(c.now)
}

type countedReader struct {
	in io.Reader
	c  *counted
}

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if n > 0 {
		r.c.report(n)
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}
