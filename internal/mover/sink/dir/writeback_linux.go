package dir

import (
	"os"

	"golang.org/x/sys/unix"
)

// window is how much of a large file may be dirty or cached: enough to keep the
// disk busy, little enough to leave the node its page cache.
const window = 16 << 20

// writeback bounds the page cache that a large file takes: what was written is
// sent to the disk at once, and forgotten when it has arrived. It is advice to
// the kernel, so its failures are none of ours; Finish reports what matters.
type writeback struct{ sent int64 }

// advance hears that the file was written up to byte n.
func (w *writeback) advance(f *os.File, n int64) {
	for n-w.sent >= window {
		fd := int(f.Fd())
		_ = unix.SyncFileRange(fd, w.sent, window, unix.SYNC_FILE_RANGE_WRITE)
		if before := w.sent - window; before >= 0 {
			_ = unix.SyncFileRange(fd, before, window,
				unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
			_ = unix.Fadvise(fd, before, window, unix.FADV_DONTNEED)
		}
		w.sent += window
	}
}
