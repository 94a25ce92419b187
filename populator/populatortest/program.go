package populatortest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Program is a plugin that is a program of its own, in any language.
type Program struct {
	// Command is the program and its arguments: the plugin itself and no shell
	// around it, since it is killed. "{socket}" in an argument or in Env stands for
	// the path of the socket that it has to listen on.
	Command []string
	// Env is added to the environment, as NAME=value.
	Env []string
	// Dir is the directory to run it in. Default: the test's.
	Dir string
}

// Start starts a program, until the test ends, and returns it as a target. Its
// output goes to the test's.
func Start(t *testing.T, p Program) Target {
	t.Helper()
	r := &running{program: p, socket: socket(t), output: t.Output()}
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.kill(); err != nil {
			t.Error(err)
		}
	})
	return Target{Address: "unix:" + r.socket, Restart: r.restart}
}

// StartProgram is Start for programs that are no tests: the socket is at the given
// path, and stop ends the program.
func StartProgram(ctx context.Context, p Program, socket string, output io.Writer) (target Target, stop func() error, err error) {
	r := &running{program: p, socket: socket, output: output}
	if err := r.start(ctx); err != nil {
		return Target{}, nil, err
	}
	return Target{Address: "unix:" + socket, Restart: r.restart}, r.kill, nil
}

// running is a program that runs.
type running struct {
	program Program
	socket  string
	output  io.Writer

	cmd  *exec.Cmd
	done chan struct{}
}

func (r *running) start(ctx context.Context) error {
	if len(r.program.Command) == 0 {
		return errors.New("start plugin: no command")
	}
	fill := strings.NewReplacer("{socket}", r.socket)
	args := make([]string, len(r.program.Command))
	for i, a := range r.program.Command {
		args[i] = fill.Replace(a)
	}
	// The program outlives the context: stop ends it.
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.program.Dir, os.Environ()
	for _, e := range r.program.Env {
		cmd.Env = append(cmd.Env, fill.Replace(e))
	}
	cmd.Stdout, cmd.Stderr = r.output, r.output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start plugin: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // a program that is killed has no good exit code
	}()
	r.cmd, r.done = cmd, done
	if err := r.listens(ctx); err != nil {
		return errors.Join(err, r.kill())
	}
	return nil
}

// listens waits until the program takes a connection.
func (r *running) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", r.socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-r.done:
			return fmt.Errorf("plugin ended before it listened: %s", r.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("plugin does not listen on %q: %w", r.socket, err)
		case <-tick.C:
		}
	}
}

// kill ends the program as a crash does.
func (r *running) kill() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill plugin: %w", err)
	}
	<-r.done
	return nil
}

func (r *running) restart(ctx context.Context) error {
	if err := r.kill(); err != nil {
		return err
	}
	return r.start(ctx)
}
