package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

func (s *Sink) file(ctx context.Context, name string, e mover.Entry, data io.Reader) (err error) {
	if name == "." {
		return refuse(e, "names the target itself")
	}
	if data == nil {
		return fmt.Errorf("put file %q: no data", e.Path)
	}
	if e.Size > s.volume.size {
		return tooSmall(e, s.volume.size)
	}
	parent, base, err := s.in(name)
	if err != nil {
		return err
	}
	f, current, err := create(parent, base)
	if err != nil {
		return fmt.Errorf("create file for %q: %w", e.Path, err)
	}
	defer func() {
		if err != nil {
			// Best effort: the volume of a failed attempt is thrown away.
			_ = f.Close()
			_ = parent.Remove(current)
		}
	}()
	v := mover.NewVerified(ctx, e, data)
	if err := s.write(f, e, v); err != nil {
		return err
	}
	if s.opts.ReadBack {
		if err := s.readBack(ctx, e, f, v); err != nil {
			return err
		}
	}
	if err := s.dress(f, e); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close file %q: %w", e.Path, err)
	}
	if !e.ModTime.IsZero() {
		if err := parent.Chtimes(current, e.ModTime, e.ModTime); err != nil {
			return fmt.Errorf("set time of file %q: %w", e.Path, err)
		}
	}
	if current != base {
		if err := parent.Rename(current, base); err != nil {
			return fmt.Errorf("name file %q: %w", e.Path, err)
		}
		s.forgetParent() // what was replaced may be a link that led to it
	}
	s.tally.File(name, v.Size(), v.Digest())
	return nil
}

// create makes a new file under the name base, or, where something has that
// name, under one that it will be renamed from: beside it, so that the rename
// cannot cross file systems. O_EXCL: it is nothing that was put before.
func create(parent *os.Root, base string) (*os.File, string, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	f, err := parent.OpenFile(base, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		base = temporaryName()
		f, err = parent.OpenFile(base, flags, 0o600)
	}
	return f, base, err //nolint:wrapcheck // the caller knows the entry
}

func temporaryName() string { return ".sluice-" + rand.Text() }

// write copies data into f, without runs of zeros and without filling the
// node's page cache.
func (s *Sink) write(f *os.File, e mover.Entry, data io.Reader) error {
	var written, end int64 // end of the data, with and without zeros at the end
	var cache writeback
	for {
		n, err := io.ReadFull(data, s.buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("write file %q: %w", e.Path, err)
		}
		// Zeros take no room, so the volume would not be full of them ever.
		if s.volume.written += int64(n); s.volume.written > s.volume.size {
			return tooSmall(e, s.volume.size)
		}
		for from, to := range dataRuns(s.buf[:n]) {
			if _, err := f.WriteAt(s.buf[from:to], written+int64(from)); err != nil {
				return fmt.Errorf("write file %q: %w", e.Path, err)
			}
			end = written + int64(to)
		}
		written += int64(n)
		cache.advance(f, written)
		if last {
			break
		}
	}
	if end < written {
		if err := f.Truncate(written); err != nil {
			return fmt.Errorf("set size of file %q: %w", e.Path, err)
		}
	}
	return nil
}

// readBack compares what is in the file with what came in.
func (s *Sink) readBack(ctx context.Context, e mover.Entry, f *os.File, v *mover.Verified) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read file %q again: %w", e.Path, err)
	}
	again := mover.NewVerified(ctx, mover.Entry{Path: e.Path, Size: v.Size(), Digest: v.Digest()}, f)
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{again}, s.buf); err != nil {
		// What the volume gives back is no fault of the source's.
		return mover.Retryable(worker.ReasonWorkerFailed, fmt.Errorf("read file %q again: %w", e.Path, err))
	}
	return nil
}

// dress gives a file its owner and mode. The owner first: a new one takes the
// special bits away.
func (s *Sink) dress(f *os.File, e mover.Entry) error {
	if s.opts.Ownership && e.Owner != nil {
		if err := f.Chown(e.Owner.UID, e.Owner.GID); err != nil {
			return fmt.Errorf("set owner of file %q: %w", e.Path, err)
		}
	}
	if err := f.Chmod(s.mode(e, fileMode)); err != nil {
		return fmt.Errorf("set mode of file %q: %w", e.Path, err)
	}
	return nil
}

// mode returns the mode for e: permission bits, and others only if asked. A
// volume does not bring set-user-ID programs with it by surprise.
func (s *Sink) mode(e mover.Entry, otherwise fs.FileMode) fs.FileMode {
	mask := fs.ModePerm
	if s.opts.SpecialBits {
		mask |= fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	}
	if e.Mode&mask == 0 && !e.ExactMode {
		return otherwise
	}
	return e.Mode & mask
}

func tooSmall(e mover.Entry, size int64) error {
	return mover.Permanent(worker.ReasonVolumeTooSmall,
		fmt.Errorf("write file %q: the data is larger than the volume's file system of %d bytes", e.Path, size))
}
