package population

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/cluster/clustertest"
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

// end is the end of what was said.
func (l *logBuffer) end(limit int) string {
	all := l.String()
	return all[max(0, len(all)-limit):]
}

// startManager runs the manager until the test ends and waits until it is
// ready. What it said is shown if the test fails.
func startManager(t *testing.T, args ...string) *process {
	t.Helper()
	return startManagerBy(t, cluster.Kubeconfig, args...)
}

// startManagerBy is startManager with another way to the API server.
func startManagerBy(t *testing.T, kubeconfig string, args ...string) *process {
	t.Helper()
	return started(t, []string{program}, kubeconfig, args...)
}

// startManagerWith is startManager with another file of hosts in the place of the
// machine's.
func startManagerWith(t *testing.T, hosts string) *process {
	t.Helper()
	return started(t, []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts, program}, cluster.Kubeconfig)
}

func started(t *testing.T, command []string, kubeconfig string, args ...string) *process {
	t.Helper()
	p, err := launch(command, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("the manager said at last:\n%s", p.log.end(32<<10))
		}
	})
	eventually(t, 20*time.Second, "manager is ready", p.ready)
	return p
}

// sharedProcess is the manager of all tests that run beside each other. It starts with
// the first of them, when those that need managers of their own are over, and
// ends with the cluster.
var sharedProcess = sync.OnceValues(func() (*process, error) { return launch([]string{program}, cluster.Kubeconfig) })

// sharedManager waits until the shared manager is ready. What it said about the
// test is shown if that fails.
func sharedManager(t *testing.T) {
	t.Helper()
	p, err := sharedProcess()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "manager is ready", p.ready)
}

// managerOn is what the shared manager said about a namespace.
func managerOn(namespace string) string {
	p, err := sharedProcess()
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, namespace) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// launch starts a manager by a command, which ends with the test's process at the
// latest.
func launch(command []string, kubeconfig string, args ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{log: &logBuffer{}, ended: make(chan struct{}), health: fmt.Sprintf("127.0.0.1:%d", port)}
	args = slices.Concat(command[1:], []string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + systemNamespace, "--metrics-address=0",
		"--health-address=" + p.health, "--webhook-port=0", "--log-format=text", "-v=1",
	}, args)
	p.cmd = exec.Command(command[0], args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// ready says why the manager is not ready.
func (p *process) ready(ctx context.Context) error {
	select {
	case <-p.ended:
		return fmt.Errorf("the manager ended: %w\n%s", p.err, p.log)
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

// eventually polls a condition, which says what is missing, until it holds.
func eventually(t *testing.T, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, what, within, check)
}
