package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy is returned by Lock when another call holds the object until the
// context ends.
var ErrBusy = errors.New("another operation on the object is going on")

// lockPoll is how often a held lock is tried again. The kernel has no lock
// wait that a context could end.
const lockPoll = 10 * time.Millisecond

// Lock takes the lock of an object, whichever process of the driver asks, and
// returns what releases it, once. A process that dies releases its locks.
func (s *Store) Lock(ctx context.Context, id string) (unlock func(), err error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("lock %q: %w", id, ErrNotFound)
	}
	path := filepath.Join(s.dir, locksDir, id)
	for {
		f, held, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", id, err)
		}
		if held {
			return sync.OnceFunc(func() {
				// Removed before released: who waits on this inode sees
				// that it is no longer the one at the path.
				_ = os.Remove(path)
				_ = f.Close()
			}), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %q: %w", id, ErrBusy)
		case <-time.After(lockPoll):
		}
	}
}

// tryLock takes the lock file if it is free and still the one at the path.
func tryLock(path string) (_ *os.File, held bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if !held {
			_ = f.Close()
		}
	}()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return f, os.SameFile(mine, there), nil
}
