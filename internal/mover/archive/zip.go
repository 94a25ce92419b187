package archive

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/flate"

	"github.com/sluice-dev/sluice/internal/mover"
)

const (
	// maxDirectory bounds how much of a zip archive is read to know its entries:
	// all of them are in memory at once.
	maxDirectory = 16 << 20
	// maxLink bounds the target of a symbolic link.
	maxLink = 4096
	// Systems that write Unix modes into a zip archive.
	creatorUnix, creatorDarwin = 3, 19
	// flagEncrypted marks an entry that takes a password.
	flagEncrypted = 1
)

// zip keeps the archive in a scratch file and extracts it from there.
func (x *extraction) zip(ctx context.Context, in io.Reader) (err error) {
	if x.opts.Scratch == nil {
		return unsupported("it is a zip archive, and there is no room to keep it in")
	}
	f, err := x.opts.Scratch()
	if err != nil {
		return fmt.Errorf("keep zip archive: %w", mover.VolumeError(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := keep(ctx, f, in)
	if err != nil {
		return err
	}
	at := &budgetReader{in: f, left: maxDirectory}
	r, err := zip.NewReader(at, size)
	if errors.Is(err, zip.ErrInsecurePath) {
		err = nil // names are judged here
	}
	if err != nil {
		return fmt.Errorf("read zip directory: %w", badData(err))
	}
	at.left = -1
	r.RegisterDecompressor(zip.Deflate, flate.NewReader)
	names := make(map[string]bool, len(r.File))
	for _, f := range r.File {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := x.count(); err != nil {
			return err
		}
		if names[f.Name] {
			return unsupported(fmt.Sprintf("entry %q is there twice", shorten(f.Name)))
		}
		names[f.Name] = true
		if err := x.zipEntry(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the archive into f. Errors of the volume and of the source are
// told apart.
func keep(ctx context.Context, f *os.File, in io.Reader) (int64, error) {
	buf := make([]byte, 1<<20)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return 0, fmt.Errorf("keep zip archive: %w", mover.VolumeError(err))
			}
			size += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read zip archive: %w", err)
		}
	}
}

// budgetReader refuses to read more than what is left, unless left is negative.
type budgetReader struct {
	in   io.ReaderAt
	left int64
}

// ReadAt implements io.ReaderAt.
func (b *budgetReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := b.in.ReadAt(p, at)
	if b.left < 0 {
		return n, err //nolint:wrapcheck // io.ReaderAt's contract
	}
	if b.left -= int64(n); b.left < 0 {
		b.left = 0
		return 0, unsupported(fmt.Sprintf("its directory is larger than %d bytes", maxDirectory))
	}
	return n, err //nolint:wrapcheck // io.ReaderAt's contract
}

func (x *extraction) zipEntry(ctx context.Context, f *zip.File) error {
	mode := f.Mode()
	e := mover.Entry{ModTime: f.Modified}
	if by := f.CreatorVersion >> 8; by == creatorUnix || by == creatorDarwin {
		e.Mode = mode & modeBits // 0 is what writers without a mode leave
	}
	var err error
	if mode.IsDir() || strings.HasSuffix(f.Name, "/") {
		e.Kind = mover.Directory
		e.Path, err = x.opts.place(f.Name)
	} else {
		e.Path, err = x.opts.file(f.Name)
	}
	if err != nil || e.Path == "" {
		return err
	}
	switch {
	case e.Kind == mover.Directory:
		return x.put(ctx, e, nil)
	case f.Flags&flagEncrypted != 0:
		return unsupported(fmt.Sprintf("entry %q is encrypted", shorten(f.Name)))
	case mode&fs.ModeSymlink != 0:
		return x.zipLink(ctx, f, e)
	case !mode.IsRegular():
		return x.special(f.Name, "a device, a pipe or a socket")
	}
	if f.UncompressedSize64 > 1<<62 {
		return unsupported(fmt.Sprintf("entry %q has an impossible size", shorten(f.Name)))
	}
	e.Size = int64(f.UncompressedSize64) //nolint:gosec // compared above
	return withEntry(f, func(r io.Reader) error { return x.put(ctx, e, decoded{r}) })
}

func (x *extraction) zipLink(ctx context.Context, f *zip.File, e mover.Entry) error {
	return withEntry(f, func(r io.Reader) error {
		target, err := io.ReadAll(io.LimitReader(r, maxLink+1))
		if err != nil {
			return fmt.Errorf("read zip entry %q: %w", shorten(f.Name), badData(err))
		}
		e.Kind, e.Link = mover.Symlink, string(target)
		return x.put(ctx, e, nil)
	})
}

func withEntry(f *zip.File, use func(io.Reader) error) (err error) {
	r, err := f.Open()
	if err != nil {
		return fmt.Errorf("open zip entry %q: %w", shorten(f.Name), badData(err))
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return use(r)
}
