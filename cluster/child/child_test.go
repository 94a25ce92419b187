package child_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/child"
)

// parentRole makes this test binary a program that starts a child, says its
// process id and then waits to be killed.
const parentRole = "SLUICE_CHILD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) == "" {
		os.Exit(m.Run())
	}
	cmd := child.Command(context.Background(), "sleep", "300")
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n"); err != nil {
		os.Exit(1)
	}
	_ = cmd.Wait() // both end before that
}

func TestChildEndsWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the parent said no process id: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	// The descriptor becomes readable when that very process has ended.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open the child's process: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int((10 * time.Second).Milliseconds()))
	if err != nil || n != 1 {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		t.Errorf("the child outlives its killed parent by 10 s (%v)", err)
	}
}
