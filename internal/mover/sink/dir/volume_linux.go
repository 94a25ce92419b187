package dir

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// volume is the file system that the target is on.
type volume struct {
	// size of the file system, and what of it is free for this process.
	size, free int64
	// written counts the bytes put, holes included.
	written int64
}

// measure asks the file system of d how large it is.
func measure(root *os.Root) (v volume, err error) {
	d, err := root.Open(".")
	if err != nil {
		return volume{}, fmt.Errorf("open target directory: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return volume{}, fmt.Errorf("measure file system: %w", err)
	}
	free := st.Bavail
	if os.Geteuid() == 0 {
		free = st.Bfree // blocks that are kept for root
	}
	v = volume{size: bytesOf(st.Blocks, st.Bsize), free: bytesOf(free, st.Bsize)}
	if v.size == 0 {
		// Some file systems do not tell; they end with ENOSPC, or never.
		v.size, v.free = math.MaxInt64, math.MaxInt64
	}
	return v, nil
}

func bytesOf(blocks uint64, size int64) int64 {
	if size <= 0 || blocks > uint64(math.MaxInt64/size) {
		return math.MaxInt64
	}
	return int64(blocks) * size
}
