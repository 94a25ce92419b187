// Package archive puts what is in a tar or zip archive into a sink.
//
//	bytes ──▶ decompressor ──▶ tar reader ──▶ names: subPath, strip ──▶ mover.Sink
//	bytes ──▶ scratch file ──▶ zip reader ──▶   "          "        ──▶    "
//
// A tar archive is streamed; a zip archive has its directory at its end, so it
// is kept in a scratch file first. Compression (gzip, zstd, xz, bzip2) is found
// by the first bytes, whatever the name. An archive is untrusted: names that
// leave the root are refused, devices and the like are refused or left out, the
// number of entries is bounded, and the end has to be where the format says.
// Extended attributes and access control lists are not restored.
package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// Format is what kind of archive there is.
type Format string

// The formats.
const (
	// Auto finds the format by the first bytes.
	Auto Format = ""
	// Tar is a tar archive (v7, ustar, pax or GNU), compressed or not.
	Tar Format = "Tar"
	// Zip is a zip archive with entries that are stored or deflated.
	Zip Format = "Zip"
)

// DefaultMaxEntries bounds how many entries an archive may have.
const DefaultMaxEntries = 1_000_000

// peekSize is how much is looked at to find the format: a tar header.
const peekSize = 512

// Options of an extraction; the zero value is usable for tar archives.
type Options struct {
	// Format of the archive.
	Format Format
	// SubPath takes what is at and below this path alone, without the path.
	SubPath string
	// StripComponents takes so many leading parts off each name, below SubPath.
	// What has no more parts is left out.
	StripComponents int
	// SkipUnsupported leaves out devices, pipes, sockets and links that leave
	// the volume, instead of refusing the archive.
	SkipUnsupported bool
	// MaxEntries is how many entries the archive may have. 0 is
	// DefaultMaxEntries.
	MaxEntries int64
	// Scratch makes a file for a zip archive, which the extraction closes. nil
	// refuses zip archives.
	Scratch func() (*os.File, error)
}

// Outcome is what an extraction did beside putting entries.
type Outcome struct {
	// Entries that were put.
	Entries int64
	// Skipped is how many entries were left out as unsupported, and FirstSkipped
	// says why the first was.
	Skipped      int64
	FirstSkipped string
}

// Extract reads one archive from in, to its end, and puts its entries into to.
// It does not call Sink.Finish. An archive from which nothing was put is
// SourceEmpty, or SourceMissing if it has nothing at SubPath. Errors of in and
// of the sink are returned as they are, within context.
func Extract(ctx context.Context, in io.Reader, to mover.Sink, opts Options) (Outcome, error) {
	if opts.MaxEntries <= 0 {
		opts.MaxEntries = DefaultMaxEntries
	}
	x := &extraction{to: to, opts: opts}
	if err := x.run(ctx, in); err != nil {
		return x.out, err
	}
	if x.out.Entries > 0 {
		return x.out, nil
	}
	if opts.SubPath != "" && x.seen > 0 {
		return x.out, mover.Permanent(worker.ReasonSourceMissing, fmt.Errorf("read archive: it has nothing at %q", opts.SubPath))
	}
	return x.out, mover.Permanent(worker.ReasonSourceEmpty, errors.New("read archive: it has no entry"))
}

type extraction struct {
	to   mover.Sink
	opts Options
	seen int64
	out  Outcome
}

func (x *extraction) run(ctx context.Context, in io.Reader) (err error) {
	raw := bufio.NewReaderSize(in, 64<<10)
	head, err := raw.Peek(peekSize)
	if len(head) == 0 {
		if errors.Is(err, io.EOF) {
			return mover.Permanent(worker.ReasonSourceEmpty, errors.New("read archive: it has no byte"))
		}
		return fmt.Errorf("read archive: %w", err)
	}
	if isZip(head) || x.opts.Format == Zip {
		if x.opts.Format == Tar {
			return unsupported("it is a zip archive and not tar")
		}
		return x.zip(ctx, raw)
	}
	plain, err := decompress(raw, head)
	if err != nil {
		return fmt.Errorf("open archive: %w", badData(err))
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	tarred := bufio.NewReaderSize(plain, peekSize)
	head, err = tarred.Peek(peekSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read archive: %w", badData(err))
	}
	if x.opts.Format == Auto && !isTar(head) {
		return unsupported("it is neither a tar nor a zip archive" + looksLike(head))
	}
	return x.tar(ctx, tarred)
}

// put hands one entry to the sink, or leaves it out.
func (x *extraction) put(ctx context.Context, e mover.Entry, data io.Reader) error {
	err := x.to.Put(ctx, e, data)
	if err == nil {
		x.out.Entries++
		return nil
	}
	// A sink that refuses a link has done nothing else.
	reason, permanent := mover.Classify(err)
	if e.Kind == mover.Symlink && x.opts.SkipUnsupported && permanent && reason == worker.ReasonUnsupportedFormat {
		x.skip(err)
		return nil
	}
	return fmt.Errorf("extract archive: %w", err)
}

// special is what becomes of an entry that no volume should hold.
func (x *extraction) special(name, what string) error {
	err := unsupported(fmt.Sprintf("entry %q is %s", shorten(name), what))
	if !x.opts.SkipUnsupported {
		return err
	}
	x.skip(err)
	return nil
}

func (x *extraction) skip(why error) {
	if x.out.Skipped == 0 {
		x.out.FirstSkipped = why.Error()
	}
	x.out.Skipped++
}

// count counts an entry of the archive.
func (x *extraction) count() error {
	if x.seen++; x.seen > x.opts.MaxEntries {
		return unsupported(fmt.Sprintf("it has more than %d entries", x.opts.MaxEntries))
	}
	return nil
}

// unsupported is the error for an archive that is not extracted.
func unsupported(why string) error {
	return mover.Permanent(worker.ReasonUnsupportedFormat, errors.New("read archive: "+why))
}

// badData gives an error of decoding its reason; one that has a reason, and one
// of the context, stays as it is.
func badData(err error) error {
	if _, ok := errors.AsType[*mover.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return mover.Retryable(worker.ReasonTruncated, errors.New("the archive ends too early"))
	}
	if isDecoding(err) {
		return mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("the archive is damaged: %w", err))
	}
	return err
}

func shorten(name string) string {
	if len(name) > 128 {
		return name[:128] + "…"
	}
	return name
}
