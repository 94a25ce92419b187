// Package files is the source of contents that a populator's template already
// holds: it copies the worker's $SLUICE_FILES directory into the volume.
package files

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/mount"
)

// Source copies the files of one directory, in the order of their names.
type Source struct {
	dir   *mount.Dir
	files []mount.File
}

var _ mover.Source = (*Source)(nil)

// Open returns a source of the files in directory.
func Open(directory string) (*Source, error) {
	dir, err := mount.Open(directory)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it is about
	}
	return &Source{dir: dir}, nil
}

// Close releases the directory.
func (s *Source) Close() error {
	return s.dir.Close() //nolint:wrapcheck // it says what it is about
}

// Resolve implements mover.Source.
func (s *Source) Resolve(ctx context.Context) (mover.Revision, error) {
	files, err := s.dir.Files(ctx)
	if err != nil {
		return mover.Revision{}, err //nolint:wrapcheck // it says what it is about
	}
	if len(files) == 0 {
		return mover.Revision{}, mover.Permanent(worker.ReasonSourceEmpty, errors.New("list files: there is none"))
	}
	s.files = files
	r := mover.Revision{ID: "files", Files: int64(len(files))}
	for _, f := range files {
		r.Bytes += f.Size
	}
	return r, nil
}

// Copy implements mover.Source.
func (s *Source) Copy(ctx context.Context, to mover.Sink) error {
	for _, f := range s.files {
		// Mode bits of a mounted ConfigMap say nothing but whether the file is a
		// program; the sink's default is right for all else.
		e := mover.Entry{Path: f.Name}
		if f.Mode&0o100 != 0 {
			e.Mode = 0o755
		}
		if err := s.dir.Put(ctx, to, f, e); err != nil {
			return err //nolint:wrapcheck // the sink's errors are returned unchanged, see mover.Source
		}
	}
	return nil
}
