// Package dir is a sink that writes entries below a directory: the file system
// of a volume.
//
// Every access goes through os.Root, so neither a name nor a link that was put
// before can lead out of the directory. A file that fails on the way is removed
// again, and one that replaces another gets its name last: what is under a real
// name after Put is whole. Runs of zeros become holes.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/sluice-dev/sluice/internal/mover"
)

// Defaults for entries without a mode.
const (
	fileMode      fs.FileMode = 0o644
	directoryMode fs.FileMode = 0o755
)

// maxPath bounds the path of an entry; Linux opens no longer one.
const maxPath = 4096

// bufferSize is how much of a file is in memory at once.
const bufferSize = 1 << 20

// Options of a sink; the zero value is usable.
type Options struct {
	// ReadBack reads every file again after it was written and compares it with
	// what came in, before it gets its name.
	ReadBack bool
	// Ownership gives every entry the owner that it names, and the target itself
	// the owner and mode of the entry "." if there is one. It takes root.
	Ownership bool
	// SpecialBits keeps set-user-ID, set-group-ID and sticky bits of entries.
	SpecialBits bool
}

// Sink writes below one directory.
type Sink struct {
	root   *os.Root
	opts   Options
	tally  mover.Tally
	buf    []byte
	volume volume
	// before is the target as it was when the sink was opened.
	before fs.FileInfo
	// parent is the directory named parentName, kept open because entries of
	// one directory mostly come together.
	parent     *os.Root
	parentName string
	// plain is a directory with no link among its parts.
	plain string
	// later holds what directories become once everything is in them.
	later map[string]attributes
}

var (
	_ mover.Sink   = (*Sink)(nil)
	_ mover.Volume = (*Sink)(nil)
)

// Open returns a sink for the directory target, which must exist.
func Open(target string, opts Options) (*Sink, error) {
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, mover.VolumeError(fmt.Errorf("open target directory: %w", err))
	}
	s := &Sink{root: root, opts: opts, buf: make([]byte, bufferSize), plain: ".", later: map[string]attributes{}}
	if s.before, err = root.Stat("."); err == nil {
		s.volume, err = measure(root)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at target directory: %w", err), root.Close())
	}
	return s, nil
}

// Close releases the directory. It makes nothing durable; Finish does.
func (s *Sink) Close() error {
	s.forgetParent()
	if err := s.root.Close(); err != nil {
		return fmt.Errorf("close target directory: %w", err)
	}
	return nil
}

// Put implements mover.Sink.
func (s *Sink) Put(ctx context.Context, e mover.Entry, data io.Reader) error {
	name, err := localName(e)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	switch e.Kind {
	case mover.File:
		err = s.file(ctx, name, e, data)
	case mover.Directory:
		err = s.directory(name, e)
	case mover.Symlink:
		err = s.symlink(name, e)
	case mover.HardLink:
		err = s.hardLink(name, e)
	default:
		err = refuse(e, "is of a kind that a directory cannot hold")
	}
	if err != nil {
		return mover.VolumeError(collision(e, err))
	}
	return nil
}

// Finish implements mover.Sink.
func (s *Sink) Finish(context.Context) (mover.Summary, error) {
	if err := s.finishDirectories(); err != nil {
		return mover.Summary{}, mover.VolumeError(err)
	}
	d, err := s.root.Open(".")
	if err != nil {
		return mover.Summary{}, mover.VolumeError(fmt.Errorf("open target directory: %w", err))
	}
	err = errors.Join(syncFileSystem(d), d.Close())
	if err != nil {
		return mover.Summary{}, mover.VolumeError(fmt.Errorf("make target durable: %w", err))
	}
	return s.tally.Summary(), nil
}

// Free implements mover.Volume.
func (s *Sink) Free() (int64, error) {
	v, err := measure(s.root)
	return v.free, err
}

// Scratch returns a file without a name on the volume, for a source that needs
// all of its data before it can read any. Its space is free again when it is
// closed.
func (s *Sink) Scratch() (*os.File, error) {
	name := temporaryName()
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, mover.VolumeError(fmt.Errorf("create scratch file: %w", err))
	}
	if err := s.root.Remove(name); err != nil {
		return nil, errors.Join(fmt.Errorf("unname scratch file: %w", err), f.Close())
	}
	return f, nil
}

// in returns the directory that name lies in, made if need be, and its name
// there.
func (s *Sink) in(name string) (*os.Root, string, error) {
	dir, base := path.Split(name)
	if dir = path.Clean(dir); dir == "." {
		return s.root, base, nil
	}
	if s.parent != nil && dir == s.parentName {
		return s.parent, base, nil
	}
	s.forgetParent()
	parent, err := s.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.root.MkdirAll(dir, directoryMode); err != nil {
			return nil, "", fmt.Errorf("make directory %q: %w", dir, err)
		}
		parent, err = s.root.OpenRoot(dir)
	}
	if err != nil {
		return nil, "", fmt.Errorf("open directory %q: %w", dir, err)
	}
	s.parent, s.parentName = parent, dir
	return parent, base, nil
}

// forgetParent closes the directory kept open.
func (s *Sink) forgetParent() {
	if s.parent != nil {
		_ = s.parent.Close() // nothing was written through it
		s.parent, s.parentName = nil, ""
	}
}
