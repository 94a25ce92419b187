// Package files is the source of contents that a populator's template already
// holds: it copies the worker's $SLUICE_FILES directory into the volume.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// maxFiles bounds how many files a template can have.
const maxFiles = 10_000

// Source copies the files of one directory, in the order of their names.
type Source struct {
	root  *os.Root
	files []file
}

type file struct {
	name string
	size int64
	mode fs.FileMode
}

var _ mover.Source = (*Source)(nil)

// Open returns a source of the files in directory.
func Open(directory string) (*Source, error) {
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, mover.Permanent(worker.ReasonSourceMissing, fmt.Errorf("open files: %w", err))
	}
	if err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	return &Source{root: root}, nil
}

// Close releases the directory.
func (s *Source) Close() error {
	if err := s.root.Close(); err != nil {
		return fmt.Errorf("close files: %w", err)
	}
	return nil
}

// Resolve implements mover.Source. A mounted ConfigMap keeps its files in
// folders whose names begin with two dots and links to them; the folders are
// left out and the links followed, but not out of the directory.
func (s *Source) Resolve(ctx context.Context) (mover.Revision, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return mover.Revision{}, fmt.Errorf("list files: %w", err)
	}
	s.files = nil
	var total int64
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return mover.Revision{}, context.Cause(ctx)
		}
		name := entry.Name()
		if strings.HasPrefix(name, "..") {
			continue
		}
		info, err := s.root.Stat(name)
		if err != nil {
			return mover.Revision{}, fmt.Errorf("look at file %q: %w", name, err)
		}
		if !info.Mode().IsRegular() {
			return mover.Revision{}, mover.Permanent(worker.ReasonUnsupportedFormat,
				fmt.Errorf("look at file %q: it is no regular file", name))
		}
		if len(s.files) == maxFiles {
			return mover.Revision{}, mover.Permanent(worker.ReasonUnsupportedFormat,
				fmt.Errorf("list files: there are more than %d", maxFiles))
		}
		s.files = append(s.files, file{name: name, size: info.Size(), mode: info.Mode().Perm()})
		total += info.Size()
	}
	if len(s.files) == 0 {
		return mover.Revision{}, mover.Permanent(worker.ReasonSourceEmpty, errors.New("list files: there is none"))
	}
	return mover.Revision{ID: "files", Bytes: total, Files: int64(len(s.files))}, nil
}

// Copy implements mover.Source.
func (s *Source) Copy(ctx context.Context, to mover.Sink) error {
	for _, f := range s.files {
		if err := s.copy(ctx, to, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) copy(ctx context.Context, to mover.Sink, f file) (err error) {
	in, err := s.root.Open(f.name)
	if err != nil {
		return fmt.Errorf("open file %q: %w", f.name, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	// Mode bits of a mounted ConfigMap say nothing but whether the file is a
	// program; the sink's default is right for all else.
	entry := mover.Entry{Path: f.name, Size: f.size}
	if f.mode&0o100 != 0 {
		entry.Mode = 0o755
	}
	return to.Put(ctx, entry, io.Reader(in)) //nolint:wrapcheck // the sink's errors are returned unchanged, see mover.Source
}
