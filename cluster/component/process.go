package component

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is one running program.
type process struct {
	cmd   *exec.Cmd
	grace time.Duration
	done  chan struct{} // closed when it has ended
	err   error         // how it ended; read after done
}

func startProcess(name string, c *Command, logs Logs) (*process, error) {
	log, err := logs.Create(name)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child holds its own descriptor
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A process group of its own: what a program starts can be signalled with
	// it, and a terminal's Ctrl-C reaches only the supervisor.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start := cmd.Start
	if c.Namespace != nil {
		start = func() error { return c.Namespace.Run(cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, grace: c.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = defaultGrace
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		if p.err == nil {
			p.err = fmt.Errorf("exit status 0")
		}
	}()
	return p, nil
}

// awaitReady polls the probe until it succeeds, ctx ends or the process does.
func (p *process) awaitReady(ctx context.Context, probe Probe) error {
	if probe == nil {
		return nil
	}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errEnded
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// stop ends the process and waits until it is gone.
func (p *process) stop(ctx context.Context) {
	// Errors mean that the process is gone already, which is what is wanted.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return
	case <-grace.C:
	case <-ctx.Done():
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}
