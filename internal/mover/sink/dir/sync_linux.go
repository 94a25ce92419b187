package dir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem makes everything on d's file system durable in one go, which
// for many small files is far faster than one fsync each, and reports errors of
// writing back all the same.
func syncFileSystem(d *os.File) error {
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync file system: %w", err)
	}
	return nil
}
