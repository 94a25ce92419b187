// Package dir is a sink that writes entries below a directory: the file system
// of a volume.
//
// Every access goes through os.Root, so neither a name nor a link that was put
// before can lead out of the directory. A file is written under a temporary
// name, verified, and renamed; what is under its real name is always whole.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
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
}

// Sink writes below one directory.
type Sink struct {
	root  *os.Root
	opts  Options
	tally mover.Tally
	buf   []byte
}

var _ mover.Sink = (*Sink)(nil)

// Open returns a sink for the directory target, which must exist.
func Open(target string, opts Options) (*Sink, error) {
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, mover.VolumeError(fmt.Errorf("open target directory: %w", err))
	}
	return &Sink{root: root, opts: opts, buf: make([]byte, bufferSize)}, nil
}

// Close releases the directory. It makes nothing durable; Finish does.
func (s *Sink) Close() error {
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

func (s *Sink) file(ctx context.Context, name string, e mover.Entry, data io.Reader) (err error) {
	if name == "." {
		return refuse(e, "names the target itself")
	}
	if data == nil {
		return fmt.Errorf("put file %q: no data", e.Path)
	}
	if err := s.parent(name); err != nil {
		return err
	}
	// The temporary lies beside the file, so that a rename cannot cross file
	// systems. O_EXCL: it is nothing that was put before.
	temporary := path.Join(path.Dir(name), ".sluice-"+rand.Text())
	f, err := s.root.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create file for %q: %w", e.Path, err)
	}
	defer func() {
		if err != nil {
			// Best effort: the volume of a failed attempt is thrown away.
			_ = f.Close()
			_ = s.root.Remove(temporary)
		}
	}()
	v := mover.NewVerified(ctx, e, data)
	// The wrapper keeps CopyBuffer from handing over to ReadFrom, which would
	// bring a buffer of its own.
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, v, s.buf); err != nil {
		return fmt.Errorf("write file %q: %w", e.Path, err)
	}
	if s.opts.ReadBack {
		if err := s.readBack(ctx, e, f, v); err != nil {
			return err
		}
	}
	if err := f.Chmod(permissions(e, fileMode)); err != nil {
		return fmt.Errorf("set mode of file %q: %w", e.Path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close file %q: %w", e.Path, err)
	}
	if !e.ModTime.IsZero() {
		if err := s.root.Chtimes(temporary, e.ModTime, e.ModTime); err != nil {
			return fmt.Errorf("set time of file %q: %w", e.Path, err)
		}
	}
	if err := s.root.Rename(temporary, name); err != nil {
		return fmt.Errorf("name file %q: %w", e.Path, err)
	}
	s.tally.File(name, v.Size(), v.Digest())
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

func (s *Sink) directory(name string, e mover.Entry) error {
	if name != "." {
		if err := s.root.MkdirAll(name, directoryMode); err != nil {
			return fmt.Errorf("make directory %q: %w", e.Path, err)
		}
		if err := s.root.Chmod(name, permissions(e, directoryMode)|0o700); err != nil {
			return fmt.Errorf("set mode of directory %q: %w", e.Path, err)
		}
	}
	s.tally.Other(name, "directory")
	return nil
}

func (s *Sink) symlink(name string, e mover.Entry) error {
	if name == "." {
		return refuse(e, "names the target itself")
	}
	if e.Link == "" || strings.ContainsRune(e.Link, 0) || len(e.Link) > maxPath {
		return refuse(e, "is a link to nowhere")
	}
	// A link out of the volume would make its readers, with their rights, open
	// what is theirs and not the source's.
	if path.IsAbs(e.Link) || !linksWithin(path.Dir(name), e.Link) {
		return refuse(e, fmt.Sprintf("is a link to %q, which is outside of the volume", e.Link))
	}
	if err := s.parent(name); err != nil {
		return err
	}
	if err := s.noLinkAbove(name, e); err != nil {
		return err
	}
	if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %q: %w", e.Path, err)
	}
	if err := s.root.Symlink(e.Link, name); err != nil {
		return fmt.Errorf("make link %q: %w", e.Path, err)
	}
	s.tally.Other(name, "link "+e.Link)
	return nil
}

// noLinkAbove refuses a link that lies behind another one: where it leads to
// could not be told from its letters.
func (s *Sink) noLinkAbove(name string, e mover.Entry) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := s.root.Lstat(dir)
		if err != nil {
			return fmt.Errorf("look at directory %q: %w", dir, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return refuse(e, fmt.Sprintf("is a link behind the link %q", dir))
		}
	}
	return nil
}

// parent makes the directories that name lies in.
func (s *Sink) parent(name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := s.root.MkdirAll(dir, directoryMode); err != nil {
			return fmt.Errorf("make directory %q: %w", dir, err)
		}
	}
	return nil
}

// permissions returns the mode for e: permission bits only. A volume never
// brings set-user-ID, set-group-ID or sticky bits with it.
func permissions(e mover.Entry, otherwise fs.FileMode) fs.FileMode {
	if e.Mode.Perm() == 0 {
		return otherwise
	}
	return e.Mode.Perm()
}
