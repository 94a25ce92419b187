// Package block is a sink that writes one file onto a device, from its first
// byte on: a volume of mode Block.
package block

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// bufferSize is how much is in memory at once, and the unit of writes.
const bufferSize = 1 << 20

// Options of a sink; the zero value is usable.
type Options struct {
	// ReadBack reads what was written again and compares it with what came in.
	ReadBack bool
}

// Sink writes onto one device. It takes exactly one entry, a File, whose path
// does not matter.
type Sink struct {
	device *os.File
	size   int64
	opts   Options
	tally  mover.Tally
	done   bool
	// solid says that the device has no holes.
	solid bool
}

var zeros [bufferSize]byte

var (
	_ mover.Sink   = (*Sink)(nil)
	_ mover.Volume = (*Sink)(nil)
)

// Open returns a sink for the device target, which must exist. It is never
// created: a missing device must not turn into a file in the worker's memory.
func Open(target string, opts Options) (*Sink, error) {
	device, err := os.OpenFile(target, os.O_RDWR, 0)
	if err != nil {
		return nil, mover.VolumeError(fmt.Errorf("open target device: %w", err))
	}
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("measure target device: %w", err), device.Close())
	}
	return &Sink{device: device, size: size, opts: opts}, nil
}

// Close releases the device. It makes nothing durable; Finish does.
func (s *Sink) Close() error {
	if err := s.device.Close(); err != nil {
		return fmt.Errorf("close target device: %w", err)
	}
	return nil
}

// Put implements mover.Sink.
func (s *Sink) Put(ctx context.Context, e mover.Entry, data io.Reader) error {
	switch {
	case e.Kind != mover.File || data == nil:
		return mover.Permanent(worker.ReasonUnsupportedFormat,
			fmt.Errorf("refuse entry %q: a block volume holds the bytes of one file and nothing else", e.Path))
	case s.done:
		return mover.Permanent(worker.ReasonUnsupportedFormat,
			fmt.Errorf("refuse entry %q: a block volume holds one file, and this is the second", e.Path))
	case e.Size > s.size:
		return tooSmall(e, s.size)
	}
	s.done = true
	if err := s.write(ctx, e, data); err != nil {
		return mover.VolumeError(err)
	}
	return nil
}

// Free implements mover.Volume.
func (s *Sink) Free() (int64, error) { return s.size, nil }

// Finish implements mover.Sink.
func (s *Sink) Finish(context.Context) (mover.Summary, error) {
	if err := s.device.Sync(); err != nil {
		return mover.Summary{}, mover.VolumeError(fmt.Errorf("make target durable: %w", err))
	}
	return s.tally.Summary(), nil
}

func (s *Sink) write(ctx context.Context, e mover.Entry, data io.Reader) error {
	v := mover.NewVerified(ctx, e, data)
	buf := make([]byte, bufferSize)
	var written int64
	for {
		n, err := io.ReadFull(v, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fmt.Errorf("write device from %q: %w", e.Path, err)
		}
		if written+int64(n) > s.size {
			return tooSmall(e, s.size)
		}
		if err := s.put(buf[:n], written); err != nil {
			return fmt.Errorf("write device from %q at byte %d: %w", e.Path, written, err)
		}
		written += int64(n)
		if end {
			break
		}
	}
	if s.opts.ReadBack {
		if err := s.readBack(ctx, e, v); err != nil {
			return err
		}
	}
	s.tally.File(e.Path, v.Size(), v.Digest())
	return nil
}

// put writes data at byte at. A buffer of zeros becomes a hole where the device
// has such; it then reads as zeros, whatever was there.
func (s *Sink) put(data []byte, at int64) error {
	if !s.solid && len(data) == bufferSize && bytes.Equal(data, zeros[:]) {
		if err := zeroOut(s.device, at, bufferSize); err == nil {
			return nil
		}
		s.solid = true // it does not know how; zeros can be written
	}
	_, err := s.device.WriteAt(data, at)
	return err //nolint:wrapcheck // the caller knows the entry
}

// readBack compares what is on the device with what came in.
func (s *Sink) readBack(ctx context.Context, e mover.Entry, v *mover.Verified) error {
	written := mover.Entry{Path: e.Path, Size: v.Size(), Digest: v.Digest()}
	again := mover.NewVerified(ctx, written, io.NewSectionReader(s.device, 0, v.Size()))
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{again}, make([]byte, bufferSize)); err != nil {
		// What the volume gives back is no fault of the source's.
		return mover.Retryable(worker.ReasonWorkerFailed, fmt.Errorf("read device again after %q: %w", e.Path, err))
	}
	return nil
}

func tooSmall(e mover.Entry, size int64) error {
	return mover.Permanent(worker.ReasonVolumeTooSmall,
		fmt.Errorf("write %q: it is larger than the volume of %d bytes", e.Path, size))
}
