// Package mover is how data gets into a volume: a Source yields entries, a Sink
// makes them durable on the volume, a Progress hears how far it is.
//
//	source/<kind> ──Entry + bytes──▶ decorators ──▶ sink/dir or sink/block ──▶ volume
//
// Nothing below this package knows of Kubernetes. What is read is never
// trusted: names, sizes and link targets are judged by the sink, digests and
// lengths while streaming. Memory is bounded by a constant whatever the source.
package mover

import (
	"context"
	"io"
	"io/fs"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
)

// A Source reads the data of one object of its kind.
type Source interface {
	// Resolve pins what Copy will read, for example to a digest or a snapshot,
	// and learns what can be known beforehand. It is called once, before Copy,
	// and writes nothing. Unreachable, forbidden, missing and empty sources are
	// errors with four different reasons; see Permanent and Retryable.
	Resolve(ctx context.Context) (Revision, error)

	// Copy puts every entry of the pinned revision into the sink, in any order
	// but a directory before what is in it, and returns at the first error of
	// the sink, unchanged. It does not call Sink.Finish. It is not resumable: a
	// second attempt starts on an empty volume.
	Copy(ctx context.Context, to Sink) error
}

// Revision is what a source was pinned to.
type Revision struct {
	// ID names the revision in the source's own terms, for people. It holds no
	// credentials.
	ID string
	// Digest of the data as algorithm:hex, if the source knows it beforehand.
	Digest string
	// Bytes and Files that Copy will put; 0 when unknown.
	Bytes, Files int64
	// Room is how much the volume must have free at least; 0 when unknown.
	Room int64
	// Transfer is how many bytes Copy will read, for sources that are a Meter;
	// 0 when unknown.
	Transfer int64
}

// A Meter is a Source whose progress is better told by what it reads than by
// what it puts: an archive, whose contents nobody counted.
type Meter interface {
	// Transferred returns how many bytes of Revision.Transfer were read so far.
	// It is safe for concurrent use.
	Transferred() int64
}

// A Volume is a Sink that knows how much fits on it.
type Volume interface {
	// Free returns how many bytes can still be written.
	Free() (int64, error)
}

// Kind is what an Entry becomes.
type Kind uint8

// The kinds.
const (
	// File is a regular file, or the whole content of a device.
	File Kind = iota
	// Directory is a directory; parents that were not put are made.
	Directory
	// Symlink is a symbolic link to Entry.Link.
	Symlink
	// HardLink is another name of the File that was put at the path Entry.Link.
	HardLink
)

// Unknown is the Size of an entry whose length is found by reading it.
const Unknown int64 = -1

// Entry is one thing that a source yields.
type Entry struct {
	// Path of the entry below the target, with slashes. A sink refuses one that
	// leaves the target.
	Path string
	// Kind of the entry.
	Kind Kind
	// Size of a File in bytes, or Unknown. A sink refuses data of another size.
	Size int64
	// Digest of a File as sha256:hex, if known. A sink refuses other data.
	Digest string
	// Mode holds permission bits, and set-user-ID, set-group-ID and sticky bits,
	// which a sink drops unless it was told otherwise; all else is ignored. 0 is
	// the default, 0644 for files and 0755 for directories, unless ExactMode.
	Mode fs.FileMode
	// ExactMode says that a Mode of 0 is meant: nobody may do anything.
	ExactMode bool
	// Owner of a File, Directory or Symlink, if the source knows it. A sink
	// ignores it unless it was told otherwise.
	Owner *Owner
	// ModTime of a File or Directory; the zero value leaves the time of writing.
	ModTime time.Time
	// Link is the target of a Symlink, or the path of a HardLink's file.
	Link string
}

// Owner is a user and a group by number; names mean nothing on a volume.
type Owner struct{ UID, GID int }

// A Sink makes what it is given durable on one volume. It is used by one
// goroutine at a time.
type Sink interface {
	// Put writes one entry. data is read to its end for a File and nil for all
	// else. When Put returns nil, the entry is complete under its name; when it
	// returns an error, nothing is there under that name that was not before,
	// unless the volume is a device. Putting a File twice replaces it.
	Put(ctx context.Context, e Entry, data io.Reader) error

	// Finish makes all that was put durable and tells what it was. It is called
	// once, last, and only if every Put succeeded.
	Finish(ctx context.Context) (Summary, error)
}

// Summary is what a sink holds in the end.
type Summary struct {
	// Bytes and Files written.
	Bytes, Files int64
	// Digest of the data as sha256:hex; see Tally.
	Digest string
}

// Progress hears how far a copy is. Calls may come from several goroutines and
// as often as a buffer is written; what is reported never goes backwards. It
// must not block for long.
type Progress interface {
	Report(worker.Progress)
}

// ProgressFunc is a function as a Progress.
type ProgressFunc func(worker.Progress)

// Report calls f.
func (f ProgressFunc) Report(p worker.Progress) { f(p) }

// NoProgress hears nothing.
var NoProgress Progress = ProgressFunc(func(worker.Progress) {})
