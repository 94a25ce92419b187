package archive

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/sluice-dev/sluice/internal/mover/readahead"
)

// maxWindow bounds what a decompressor may keep in memory: what zstd itself
// allows without being asked, and twice what xz -9 uses.
const maxWindow = 128 << 20

var (
	magicGzip  = []byte{0x1f, 0x8b}
	magicZstd  = []byte{0x28, 0xb5, 0x2f, 0xfd}
	magicXz    = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	magicBzip2 = []byte("BZh")
)

func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

// isTar accepts what bears the mark of ustar, pax or GNU tar, an old header
// with the right sum, and an archive of nothing but its end.
func isTar(head []byte) bool {
	if len(head) < peekSize {
		return false
	}
	return string(head[257:262]) == "ustar" || sumFits(head) || len(bytes.Trim(head, "\x00")) == 0
}

// sumFits checks the sum of a tar header of before 1988.
func sumFits(head []byte) bool {
	var want, got int64
	field := strings.Trim(string(head[148:156]), " \x00")
	if field == "" {
		return false
	}
	for _, c := range field {
		if c < '0' || c > '7' {
			return false
		}
		want = want*8 + int64(c-'0')
	}
	for i, b := range head[:peekSize] {
		if i >= 148 && i < 156 {
			b = ' '
		}
		got += int64(b)
	}
	return want == got
}

// looksLike tells a user what came instead of an archive.
func looksLike(head []byte) string {
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(string(head))), "<") {
		return "; it looks like a web page"
	}
	return ""
}

// decompress returns the reader of what is in raw.
func decompress(raw *bufio.Reader, head []byte) (io.ReadCloser, error) {
	switch {
	case bytes.HasPrefix(head, magicGzip):
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("read gzip header: %w", err)
		}
		return readahead.New(z), nil
	case bytes.HasPrefix(head, magicZstd):
		z, err := zstd.NewReader(raw, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("read zstd header: %w", err)
		}
		return z.IOReadCloser(), nil // it has goroutines of its own
	case bytes.HasPrefix(head, magicXz):
		if size, ok := xzDictionary(head); !ok || size > maxWindow {
			return nil, unsupported(fmt.Sprintf("its xz compression is unknown or needs more than %d bytes of memory", maxWindow))
		}
		z, err := xz.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("read xz header: %w", err)
		}
		return readahead.New(z), nil
	case bytes.HasPrefix(head, magicBzip2):
		return readahead.New(bzip2.NewReader(raw)), nil
	default:
		return io.NopCloser(raw), nil
	}
}

// xzDictionary reads from the first block header of an xz stream how large its
// dictionary is. The layout is that of the .xz file format 1.1.0, section 3.1:
// size, flags, optional sizes, then the filters; LZMA2 alone is known.
func xzDictionary(head []byte) (int64, bool) {
	const streamHeader = 12
	if len(head) < streamHeader+12 {
		return 0, true // no block; the decoder says what is missing
	}
	block := head[streamHeader:]
	if block[0] == 0 {
		return 0, true // the index: an empty stream
	}
	flags, at := block[1], 2
	if flags&0x3f != 0 {
		return 0, false // more than one filter, or bits of a later version
	}
	for _, present := range []byte{0x40, 0x80} {
		if flags&present != 0 {
			for at < len(block) && block[at]&0x80 != 0 {
				at++
			}
			at++
		}
	}
	if at+2 >= len(block) || block[at] != 0x21 || block[at+1] != 1 {
		return 0, false
	}
	bits := block[at+2]
	if bits > 40 {
		return 0, false
	}
	return int64(2|bits&1) << (bits/2 + 11), true
}

// isDecoding reports whether err says that data is not what its format
// demands, as opposed to an error of reading it.
func isDecoding(err error) bool {
	for _, known := range []error{
		tar.ErrHeader, tar.ErrFieldTooLong, zip.ErrFormat, zip.ErrAlgorithm, zip.ErrChecksum,
		gzip.ErrHeader, gzip.ErrChecksum,
		zstd.ErrMagicMismatch, zstd.ErrWindowSizeExceeded, zstd.ErrWindowSizeTooSmall, zstd.ErrDecoderSizeExceeded,
		zstd.ErrUnknownDictionary, zstd.ErrFrameSizeExceeded, zstd.ErrFrameSizeMismatch, zstd.ErrCRCMismatch,
		zstd.ErrBlockTooSmall, zstd.ErrUnexpectedBlockSize, zstd.ErrReservedBlockType, zstd.ErrCompressedSizeTooBig,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if _, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return true
	}
	if _, ok := errors.AsType[bzip2.StructuralError](err); ok {
		return true
	}
	// xz and zstd have more errors than they export; all bear their name.
	text := err.Error()
	for _, prefix := range []string{"xz: ", "lzma: ", "zstd: ", "archive/tar: ", "readPadding: "} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
