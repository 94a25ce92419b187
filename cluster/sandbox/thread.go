package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Thread is an operating system thread that lives in namespaces of its own for
// as long as this process does. It stands for one node: processes started by
// Run see that node's mounts, network and host name.
type Thread struct {
	work chan func()
	tid  int
}

// NewThread starts a thread, moves it into a new mount and host name
// namespace, and if asked a new network namespace, and calls prepare there.
// Mounts that prepare makes are seen only by that thread and its children, as
// are later ones, which are shared among them.
func NewThread(hostname string, network bool, prepare func() error) (*Thread, error) {
	t := &Thread{work: make(chan func())}
	started := make(chan error)
	go func() {
		// Never unlocked: a thread with other namespaces must not run other
		// goroutines. It ends with the process.
		runtime.LockOSThread()
		err := enter(hostname, network, prepare)
		t.tid = unix.Gettid()
		started <- err
		if err != nil {
			return
		}
		for fn := range t.work {
			fn()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("make namespaces of %q: %w", hostname, err)
	}
	return t, nil
}

func enter(hostname string, network bool, prepare func() error) error {
	flags := unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWUTS
	if network {
		flags |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// Run calls fn on the thread and returns its result. Calls wait for each other.
func (t *Thread) Run(fn func() error) error {
	result := make(chan error)
	t.work <- func() { result <- fn() }
	return <-result
}

// NetworkNamespace opens the thread's network namespace, for moving a network
// link into it.
func (t *Thread) NetworkNamespace() (*os.File, error) {
	return os.Open("/proc/self/task/" + strconv.Itoa(t.tid) + "/ns/net")
}
