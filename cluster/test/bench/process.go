package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/cluster/clustertest"
)

// manager is a running sluice-manager beside a cluster.
type manager struct {
	cmd             *exec.Cmd
	health, metrics string
	profiles        string
	log             *os.File
	ended           chan struct{}
}

// buildManager builds the manager of the repository into a folder.
func buildManager(ctx context.Context, repository, dir string) (string, error) {
	program := filepath.Join(dir, "sluice-manager")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/sluice-manager")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the manager: %w\n%s", err, out)
	}
	return program, nil
}

// startManager starts the manager as the chart does, but for its webhooks, and
// returns when it leads.
func startManager(ctx context.Context, program, kubeconfig, logFile string) (*manager, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("keep the manager's log: %w", err)
	}
	m := &manager{log: log, ended: make(chan struct{})}
	for _, address := range []*string{&m.health, &m.metrics, &m.profiles} {
		if *address, err = freeAddress(ctx); err != nil {
			return nil, errors.Join(err, log.Close())
		}
	}
	m.cmd = exec.Command(program, //nolint:gosec // built above; it outlives ctx until it is stopped
		"--kubeconfig="+kubeconfig, "--namespace="+managerNamespace,
		"--health-address="+m.health, "--metrics-address="+m.metrics, "--pprof-address="+m.profiles, "--webhook-port=0")
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the manager: %w", err), log.Close())
	}
	go func() {
		_ = m.cmd.Wait() // how it ended is in its log
		close(m.ended)
	}()
	if err := clustertest.Until(ctx, func() (bool, error) {
		select {
		case <-m.ended:
			return false, fmt.Errorf("the manager ended; it said: %s", m.lastWords())
		default:
		}
		leads, err := m.metric(ctx, "leader_election_master_status")
		return err == nil && leads == 1, nil
	}); err != nil {
		m.stop()
		return nil, fmt.Errorf("wait for the manager to lead: %w", err)
	}
	return m, nil
}

func (m *manager) lastWords() string {
	text, err := os.ReadFile(m.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// stop ends the manager as Kubernetes would, and waits.
func (m *manager) stop() {
	_ = m.cmd.Process.Signal(syscall.SIGTERM) // one that has ended needs no signal
	select {
	case <-m.ended:
	case <-time.After(30 * time.Second):
		_ = m.cmd.Process.Kill() // it is waited for
		<-m.ended
	}
	_ = m.log.Close() // the log is for people
}

// resident is the manager's memory as the kernel counts it: now, and at most so
// far, in MiB.
func (m *manager) resident() (now, most float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the manager's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64) // only numbers are used
		switch fields[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			most = kib / 1024
		}
	}
	return now, most, nil
}

// metric is the sum of a metric over its labels.
func (m *manager) metric(ctx context.Context, name string) (float64, error) {
	text, err := fetch(ctx, "http://"+m.metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); !ok || base != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %q: %w", name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("the manager has no metric %q", name)
	}
	return sum, nil
}

// profile keeps one of the manager's profiles in a file.
func (m *manager) profile(ctx context.Context, what, file string) error {
	text, err := fetch(ctx, "http://"+m.profiles+"/debug/pprof/"+what)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("keep profile: %w", err)
	}
	return nil
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %q: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %q: %w", url, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read whole
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %q: %w", url, err)
	}
	return text, nil
}

// freeAddress is a local address that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free address: %w", err)
	}
	return l.Addr().String(), l.Close()
}
