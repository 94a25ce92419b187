// Package lifecycle starts and stops clusters from the host's side.
//
// Importing it lets the program become a cluster's supervisor: see Hook in
// package sandbox.
package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/network"
	"github.com/sluice-dev/sluice/cluster/residue"
	"github.com/sluice-dev/sluice/cluster/sandbox"
	"github.com/sluice-dev/sluice/cluster/supervisor"
	"github.com/sluice-dev/sluice/cluster/toolchain"
)

// A program that starts clusters is executed again as their first processes,
// and must take that turn before its own main or tests: an init function is the
// one place that every program and test binary passes.
func init() { sandbox.Hook(supervisor.Prepare, supervisor.Run) } //nolint:gochecknoinits // see above

// ErrRunning is returned when a cluster of that name runs already.
var ErrRunning = errors.New("runs already")

// stopGrace is how long an orderly stop may take before the cluster is killed.
const stopGrace = 40 * time.Second

// Options say how a cluster is started.
type Options struct {
	// Detached lets the cluster outlive this process. Otherwise it stops when
	// the process ends, however it ends.
	Detached bool
	// OnStatus is called for each step of the start, in order; it may be nil.
	OnStatus func(config.Status)
}

// Run is a cluster that this process started.
type Run struct {
	run     config.Run
	process *sandbox.Process

	ready    chan struct{} // closed when ready
	done     chan struct{} // closed when failed or ended
	ended    chan struct{} // closed when the first process has ended
	onStatus func(config.Status)
	stop     func() error

	mu       sync.Mutex
	err      error
	stopping bool
}

// Start starts a cluster and returns when it is ready. On failure nothing is
// left behind. What a cluster of the same name left on the machine by a crash
// is removed first.
func Start(ctx context.Context, cfg config.Config, opts Options) (*Run, error) {
	cfg, err := cfg.WithDefaults(func() string { return strings.ToLower(rand.Text()[:6]) })
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("start cluster %q: it takes root to make namespaces, mounts and cgroups; use sudo", cfg.Name)
	}
	r, err := start(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("start cluster %q: %w", cfg.Name, err)
	}
	select {
	case <-r.ready:
		return r, nil
	case <-r.done:
		err = r.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if stopErr := r.Stop(); stopErr != nil && !errors.Is(stopErr, err) {
		err = errors.Join(err, stopErr)
	}
	return nil, fmt.Errorf("start cluster %q: %w", cfg.Name, err)
}

// start makes the state folder and the namespaces and lets the supervisor go.
func start(cfg config.Config, opts Options) (*Run, error) {
	layout := cfg.Layout()
	if missing := toolchain.Missing(cfg.BinDir); len(missing) > 0 {
		return nil, fmt.Errorf("%d programs are missing in %s, %s among them: build them with `make prerequisites`",
			len(missing), cfg.BinDir, missing[0])
	}
	starter, err := config.ProcessOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := makeState(cfg); err != nil {
		return nil, err
	}
	log, err := component.Logs{Dir: layout.Logs()}.Create(supervisorLog)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child holds its own descriptor
	p, err := sandbox.Start(layout.Dir, log)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(layout.Dir))
	}
	r := &Run{
		run:      config.Run{Config: cfg, Detached: opts.Detached, Starter: starter},
		process:  p,
		ready:    make(chan struct{}),
		done:     make(chan struct{}),
		ended:    make(chan struct{}),
		onStatus: opts.OnStatus,
	}
	r.stop = sync.OnceValue(r.stopNow)
	go r.follow()
	r.run.Network, err = network.Attach(p.Cmd.Process.Pid, layout.Dir)
	if err == nil {
		err = config.Save(layout.Config(), r.run)
	}
	if err == nil {
		_, err = p.Control.Write([]byte{1})
	}
	if err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

const supervisorLog = "supervisor"

// makeState makes the state folder of a cluster, after what a dead one of the
// same name left.
func makeState(cfg config.Config) error {
	layout := cfg.Layout()
	if _, running, err := residue.FindInit(layout.Dir); err != nil {
		return err
	} else if running {
		return ErrRunning
	}
	if err := residue.Remove(scope(cfg)); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Root, 0o755); err != nil {
		return fmt.Errorf("make folder for clusters: %w", err)
	}
	if err := os.Mkdir(layout.Dir, 0o755); errors.Is(err, os.ErrExist) {
		return ErrRunning // another start was faster
	} else if err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	for _, dir := range []string{layout.Logs(), layout.Scratch()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	return nil
}

func scope(cfg config.Config) residue.Scope { return residue.Scope{Root: cfg.Root, Cluster: cfg.Name} }

// follow reads what the supervisor tells until it ends.
func (r *Run) follow() {
	decoder := json.NewDecoder(r.process.Events)
	for {
		var s config.Status
		if err := decoder.Decode(&s); err != nil {
			break // the supervisor has ended
		}
		if r.onStatus != nil {
			r.onStatus(s)
		}
		switch s.Phase {
		case config.PhaseReady:
			close(r.ready)
		case config.PhaseFailed:
			r.fail(errors.New(s.Reason))
		case config.PhaseStarting, config.PhaseStopped:
		}
	}
	_ = r.process.Events.Close() // read to its end
	exit := r.process.Cmd.Wait()
	r.fail(fmt.Errorf("the supervisor ended: %v\n%s", exit, r.Log(supervisorLog, 25))) //nolint:errorlint // nil where it ended with code 0
	close(r.ended)
}

// fail notes the first reason for the cluster's end, unless it was told to stop.
func (r *Run) fail(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.done:
		return
	default:
	}
	if !r.stopping {
		r.err = fmt.Errorf("cluster %q: %w", r.run.Config.Name, reason)
	}
	close(r.done)
}

// Config returns the description with every default filled in.
func (r *Run) Config() config.Config { return r.run.Config }

// Network returns the cluster's addresses.
func (r *Run) Network() config.Network { return r.run.Network }

// Done is closed when the cluster has failed or ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Err says why the cluster failed; nil while it runs and after a regular stop.
func (r *Run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Log returns the end of a component's log.
func (r *Run) Log(name string, lines int) string {
	return component.Logs{Dir: r.run.Config.Layout().Logs()}.Tail(name, lines)
}

// Stop stops the cluster, waits for its end and removes whatever is left. It
// returns why the cluster had failed before, if it had.
func (r *Run) Stop() error { return r.stop() }

func (r *Run) stopNow() error {
	r.mu.Lock()
	r.stopping = true
	failed := r.err
	r.mu.Unlock()
	// Closing fails only if it is closed already.
	_ = r.process.Control.Close()
	first := residue.Init{PID: r.process.Cmd.Process.Pid, Dir: r.run.Config.Layout().Dir}
	if r.run.Detached {
		if err := first.Terminate(stopGrace); err != nil {
			return errors.Join(failed, err)
		}
	}
	select {
	case <-r.ended:
	case <-time.After(stopGrace):
		if err := first.Kill(); err != nil {
			return errors.Join(failed, err)
		}
		<-r.ended
	}
	if err := residue.Remove(scope(r.run.Config)); err != nil {
		return errors.Join(failed, err)
	}
	return failed
}
