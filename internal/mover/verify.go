package mover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
)

// digestPrefix is how a digest of this package begins.
const digestPrefix = "sha256:"

// FormatDigest writes a SHA-256 sum as digests are written everywhere.
func FormatDigest(sum []byte) string { return digestPrefix + hex.EncodeToString(sum) }

// Verified is a reader that knows what is to come: it returns an error instead
// of io.EOF when the data it passed on is not what the entry promised, and as
// soon as there is more of it. It also ends when ctx does.
type Verified struct {
	ctx  context.Context
	in   io.Reader
	e    Entry
	hash hash.Hash
	n    int64
}

// NewVerified returns a reader of data that holds it to e's size and digest.
func NewVerified(ctx context.Context, e Entry, data io.Reader) *Verified {
	return &Verified{ctx: ctx, in: data, e: e, hash: sha256.New()}
}

// Read implements io.Reader.
func (v *Verified) Read(p []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, context.Cause(v.ctx)
	}
	n, err := v.in.Read(p)
	v.hash.Write(p[:n]) // never fails
	v.n += int64(n)
	if v.e.Size != Unknown && v.n > v.e.Size {
		return 0, Permanent(worker.ReasonDigestMismatch,
			fmt.Errorf("read %q: more than the %d bytes announced", v.e.Path, v.e.Size))
	}
	if err == io.EOF {
		if problem := v.atEnd(); problem != nil {
			return n, problem
		}
	}
	return n, err
}

func (v *Verified) atEnd() error {
	if v.e.Size != Unknown && v.n < v.e.Size {
		return Retryable(worker.ReasonTruncated,
			fmt.Errorf("read %q: %d bytes of the %d announced", v.e.Path, v.n, v.e.Size))
	}
	if got := v.Digest(); v.e.Digest != "" && !strings.EqualFold(v.e.Digest, got) {
		return Permanent(worker.ReasonDigestMismatch,
			fmt.Errorf("read %q: digest is %s, want %s", v.e.Path, got, v.e.Digest))
	}
	return nil
}

// Size returns how many bytes passed.
func (v *Verified) Size() int64 { return v.n }

// Digest returns the digest of the bytes that passed.
func (v *Verified) Digest() string { return FormatDigest(v.hash.Sum(nil)) }

// A Tally adds up a Summary while entries are put. Its digest is that of the
// lines "digest size path\n" of all files in the order they were put, so it is
// a key of the data only for sources that put in a fixed order; for a single
// file without further entries it is the digest of the file itself.
type Tally struct {
	bytes, files int64
	others       bool
	first        string
	lines        hash.Hash
}

// File counts a file.
func (t *Tally) File(path string, size int64, digest string) {
	t.bytes += size
	t.files++
	if t.files == 1 {
		t.first = digest
	}
	t.line(digest, size, path)
}

// Other counts an entry that is no file: note says what it is.
func (t *Tally) Other(path, note string) {
	t.others = true
	t.line(note, 0, path)
}

func (t *Tally) line(what string, size int64, path string) {
	if t.lines == nil {
		t.lines = sha256.New()
	}
	fmt.Fprintf(t.lines, "%s %d %q\n", what, size, path) // a hash never fails
}

// Summary returns what was counted.
func (t *Tally) Summary() Summary {
	s := Summary{Bytes: t.bytes, Files: t.files}
	switch {
	case t.files == 1 && !t.others:
		s.Digest = t.first
	case t.lines != nil:
		s.Digest = FormatDigest(t.lines.Sum(nil))
	}
	return s
}
