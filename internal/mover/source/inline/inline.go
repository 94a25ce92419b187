// Package inline is the source of files that stand in a Kubernetes object:
// text in the source itself, and the keys of ConfigMaps and Secrets that are
// mounted into the worker.
package inline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/mount"
)

// Options of a source.
type Options struct {
	// Manifest says what the volume gets.
	Manifest Manifest
	// Directories by the names that the manifest gives them.
	Directories map[string]string
}

// Source puts the files of a manifest, in its order.
type Source struct {
	opts Options
	dirs map[string]*mount.Dir
	puts []put
}

// put is one file that will be put: with content, or of a directory.
type put struct {
	entry   mover.Entry
	content []byte
	dir     *mount.Dir
	file    mount.File
}

var _ mover.Source = (*Source)(nil)

// New returns a source.
func New(opts Options) *Source { return &Source{opts: opts, dirs: map[string]*mount.Dir{}} }

// Close releases the directories.
func (s *Source) Close() error {
	var errs []error
	for _, d := range s.dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Resolve implements mover.Source.
func (s *Source) Resolve(ctx context.Context) (mover.Revision, error) {
	s.puts = nil
	for _, f := range s.opts.Manifest.Files {
		s.puts = append(s.puts, put{
			entry:   mover.Entry{Path: f.Path, Mode: f.Mode, Size: int64(len(f.Content))},
			content: f.Content,
		})
	}
	for _, t := range s.opts.Manifest.Trees {
		if err := s.tree(ctx, t); err != nil {
			return mover.Revision{}, err
		}
	}
	if len(s.puts) == 0 {
		return mover.Revision{}, mover.Permanent(worker.ReasonSourceEmpty, errors.New("list files: the source has none"))
	}
	r := mover.Revision{ID: "inline", Files: int64(len(s.puts))}
	seen := map[string]bool{}
	for _, p := range s.puts {
		name := path.Clean(p.entry.Path)
		if seen[name] {
			return mover.Revision{}, mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("list files: there are two for %q", name))
		}
		seen[name] = true
		r.Bytes += p.entry.Size
	}
	r.Room = r.Bytes
	return r, nil
}

// tree lists what is taken of a directory.
func (s *Source) tree(ctx context.Context, t Tree) error {
	d, err := s.open(t.Name)
	if err != nil {
		return err
	}
	if len(t.Keys) > 0 {
		return s.keys(d, t)
	}
	files, err := d.Files(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	if len(files) == 0 {
		// An optional object that does not exist is mounted as nothing.
		return mover.Permanent(worker.ReasonSourceMissing, fmt.Errorf("list files: %s does not exist or has no key", t.Name))
	}
	for _, f := range files {
		s.put(d, f, path.Join(t.Path, f.Name), t.Mode)
	}
	return nil
}

func (s *Source) keys(d *mount.Dir, t Tree) error {
	for _, k := range t.Keys {
		f, err := d.Stat(k.Key)
		if errors.Is(err, fs.ErrNotExist) {
			return mover.Permanent(worker.ReasonSourceMissing, fmt.Errorf("list files: %s has no key %q", t.Name, k.Key))
		}
		if err != nil {
			return err //nolint:wrapcheck // it says what it is about
		}
		mode := k.Mode
		if mode == 0 {
			mode = t.Mode
		}
		at := k.Path
		if at == "" {
			at = k.Key
		}
		// Two names joined here could hide that one of them goes up.
		if path.Clean("/"+at) != "/"+at {
			return mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("list files: the path %q of key %q is not a plain one", at, k.Key))
		}
		s.put(d, f, path.Join(t.Path, at), mode)
	}
	return nil
}

func (s *Source) put(d *mount.Dir, f mount.File, at string, mode fs.FileMode) {
	s.puts = append(s.puts, put{dir: d, file: f, entry: mover.Entry{Path: at, Mode: mode, Size: f.Size}})
}

func (s *Source) open(name string) (*mount.Dir, error) {
	if d, ok := s.dirs[name]; ok {
		return d, nil
	}
	directory, ok := s.opts.Directories[name]
	if !ok {
		return nil, fmt.Errorf("open files: the worker has no directory for %s", name)
	}
	d, err := mount.Open(directory)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it is about
	}
	s.dirs[name] = d
	return d, nil
}

// Copy implements mover.Source.
func (s *Source) Copy(ctx context.Context, to mover.Sink) error {
	for _, p := range s.puts {
		var err error
		if p.dir == nil {
			err = to.Put(ctx, p.entry, bytes.NewReader(p.content))
		} else {
			err = p.dir.Put(ctx, to, p.file, p.entry)
		}
		if err != nil {
			return err //nolint:wrapcheck // the sink's errors are returned unchanged, see mover.Source
		}
	}
	return nil
}
