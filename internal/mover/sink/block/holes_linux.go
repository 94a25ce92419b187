package block

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// zeroOut makes a range of the device read as zeros without writing them. The
// kernel refuses where a device cannot promise that.
func zeroOut(device *os.File, at, length int64) error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(device.Fd()), mode, at, length); err != nil {
		return fmt.Errorf("zero out: %w", err)
	}
	return nil
}
