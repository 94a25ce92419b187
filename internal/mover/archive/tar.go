package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// tarBlock is the unit of the format: headers are as long, and the end of an
// archive is marked by blocks of zeros.
const tarBlock = 512

// modeBits are what Entry.Mode may hold.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// counter counts what is read.
type counter struct {
	in io.Reader
	n  int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // io.Reader's contract
}

func (x *extraction) tar(ctx context.Context, in io.Reader) error {
	c := &counter{in: in}
	r := tar.NewReader(c)
	for {
		before := c.n
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			// The reader takes the end of the stream for that of the archive.
			// An archive that was cut between two entries has no mark there.
			if c.n-before < tarBlock {
				return mover.Retryable(worker.ReasonTruncated, errors.New("read archive: it has no end mark, so it was cut"))
			}
			return onlyZeros(ctx, in)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are judged here
			return fmt.Errorf("read archive: %w", badData(err))
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := x.tarEntry(ctx, h, r); err != nil {
			return err
		}
		// What was left out is read over here, so that the end can be told.
		if _, err := io.Copy(io.Discard, r); err != nil {
			return fmt.Errorf("read archive: entry %q: %w", shorten(h.Name), badData(err))
		}
	}
}

// onlyZeros reads what follows the archive: padding, and nothing else.
func onlyZeros(ctx context.Context, in io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := in.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return unsupported("there is more data after its end")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: after its end: %w", badData(err))
		}
	}
}

func (x *extraction) tarEntry(ctx context.Context, h *tar.Header, r *tar.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, such as git's commit
	}
	if err := x.count(); err != nil {
		return err
	}
	e := mover.Entry{
		Mode:      h.FileInfo().Mode() & modeBits,
		ExactMode: true,
		Owner:     &mover.Owner{UID: h.Uid, GID: h.Gid},
		ModTime:   h.ModTime,
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		e.Kind = mover.Directory
		e.Path, err = x.opts.place(h.Name)
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // old archives have TypeRegA
		e.Size = h.Size
		e.Path, err = x.opts.file(h.Name)
	case tar.TypeSymlink:
		e.Kind, e.Link = mover.Symlink, h.Linkname
		e.Path, err = x.opts.file(h.Name)
	case tar.TypeLink:
		return x.tarLink(ctx, h, e)
	default:
		// Out of the part that is taken it does no harm.
		if e.Path, err = x.opts.file(h.Name); err != nil || e.Path == "" {
			return err
		}
		return x.special(h.Name, specialType(h.Typeflag))
	}
	if err != nil || e.Path == "" {
		return err
	}
	if e.Kind != mover.File {
		return x.put(ctx, e, nil)
	}
	return x.put(ctx, e, decoded{r})
}

func (x *extraction) tarLink(ctx context.Context, h *tar.Header, e mover.Entry) error {
	var err error
	e.Kind = mover.HardLink
	if e.Path, err = x.opts.file(h.Name); err != nil || e.Path == "" {
		return err
	}
	if e.Link, err = x.opts.file(h.Linkname); err != nil {
		return err
	}
	if e.Link == "" {
		return unsupported(fmt.Sprintf("entry %q is a hard link to %q, which is outside of the part that is extracted",
			shorten(h.Name), shorten(h.Linkname)))
	}
	return x.put(ctx, e, nil)
}

func specialType(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	default:
		return fmt.Sprintf("of the unknown type %q", flag)
	}
}

// decoded gives errors of decoding their reason on their way through a sink.
type decoded struct{ in io.Reader }

// Read implements io.Reader.
func (d decoded) Read(p []byte) (int, error) {
	n, err := d.in.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // io.Reader's contract: EOF itself
		err = badData(err)
	}
	return n, err
}
