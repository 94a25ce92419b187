// Package mount reads directories that the kubelet keeps: mounted ConfigMaps,
// Secrets and projections. Their files are links into a folder whose name
// begins with two dots; the folders are left out and the links followed, but
// never out of the directory.
package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// maxFiles bounds how many files a directory can have; a megabyte, which is
// what such an object holds at most, has no more.
const maxFiles = 10_000

// Dir is one directory.
type Dir struct{ root *os.Root }

// File is a file in it.
type File struct {
	Name string
	Size int64
	Mode fs.FileMode
}

// Open opens a directory. One that is not there is SourceMissing.
func Open(directory string) (*Dir, error) {
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, mover.Permanent(worker.ReasonSourceMissing, fmt.Errorf("open files: %w", err))
	}
	if err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	return &Dir{root: root}, nil
}

// Close releases the directory.
func (d *Dir) Close() error {
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("close files: %w", err)
	}
	return nil
}

// Files returns the files in the order of their names.
func (d *Dir) Files(ctx context.Context) ([]File, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var out []File
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		f, err := d.Stat(entry.Name())
		if err != nil {
			return nil, err
		}
		if len(out) == maxFiles {
			return nil, mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("list files: there are more than %d", maxFiles))
		}
		out = append(out, f)
	}
	return out, nil
}

// Stat returns one file; a name that is not there is fs.ErrNotExist.
func (d *Dir) Stat(name string) (File, error) {
	info, err := d.root.Stat(name)
	if err != nil {
		return File{}, fmt.Errorf("look at file %q: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("look at file %q: it is no regular file", name))
	}
	return File{Name: name, Size: info.Size(), Mode: info.Mode().Perm()}, nil
}

// Put puts the file as entry e, whose Size it sets.
func (d *Dir) Put(ctx context.Context, to mover.Sink, f File, e mover.Entry) (err error) {
	in, err := d.root.Open(f.Name)
	if err != nil {
		return fmt.Errorf("open file %q: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	e.Size = f.Size
	return to.Put(ctx, e, in) //nolint:wrapcheck // the sink's errors are returned unchanged, see mover.Source
}
