package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyChunk is how much is copied between two looks at the context.
const copyChunk = 4 << 20

// Create makes an image of the size, all hole.
func Create(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	return finish(f, f.Truncate(size))
}

// Copy makes an image of the size, at least the source's, with the source's
// content: by sharing extents where the file system can, else with holes kept.
func Copy(ctx context.Context, source, path string, size int64) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("open source image: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		err = copyData(ctx, in, out)
	}
	if err == nil {
		err = out.Truncate(size)
	}
	return finish(out, err)
}

// GrowImage makes an image larger; it never makes one smaller.
func GrowImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("grow image: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() < size {
		err = f.Truncate(size)
	}
	return finish(f, err)
}

// finish brings a written image to the disk.
func finish(f *os.File, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// copyData copies the extents that hold data, each to its own offset.
func copyData(ctx context.Context, in, out *os.File) error {
	var end int64
	for {
		start, err := in.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		if end, err = in.Seek(start, unix.SEEK_HOLE); err != nil {
			return fmt.Errorf("find hole: %w", err)
		}
		if _, err := in.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(start, io.SeekStart); err != nil {
			return err
		}
		for at := start; at < end; at += copyChunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := io.CopyN(out, in, min(copyChunk, end-at)); err != nil {
				return fmt.Errorf("copy data: %w", err)
			}
		}
	}
}
