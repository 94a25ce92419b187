package population

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a running manager.
type process struct {
	cmd    *exec.Cmd
	health string
	log    *logBuffer
	ended  chan struct{}
	err    error
}

// logBuffer keeps what a process says.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startManager runs the manager until the test ends and waits until it is
// ready. What it said is shown if the test fails.
func startManager(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{log: &logBuffer{}, ended: make(chan struct{}), health: freeAddress(t)}
	args = append([]string{
		"--kubeconfig=" + cluster.Kubeconfig, "--namespace=kube-node-lease", "--metrics-address=0",
		"--health-address=" + p.health, "--webhook-port=0", "--log-format=text", "-v=1", "--webhook-port=0",
	}, args...)
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("the manager said:\n%s", p.log)
		}
	})
	eventually(t, 20*time.Second, "manager is ready", func(ctx context.Context) error {
		select {
		case <-p.ended:
			t.Fatalf("the manager ended: %v\n%s", p.err, p.log)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", resp.Status)
		}
		return nil
	})
	return p
}

// stop ends the manager as Kubernetes would, and waits.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
}

// kill ends the manager as a crash would, and waits.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	select {
	case <-p.ended:
		return
	default:
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Logf("end manager: %v", err)
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Errorf("the manager did not end on %v", s)
		_ = p.cmd.Process.Kill() // it is being waited for
		<-p.ended
	}
}

// freeAddress is a local address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// until polls a condition until it holds, fails or ctx ends.
func until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// eventually polls a condition, which says what is missing, until it holds.
func eventually(t *testing.T, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var last error
	if err := until(ctx, func() (bool, error) {
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("%s: not within %v: %v", what, within, last)
	}
}
