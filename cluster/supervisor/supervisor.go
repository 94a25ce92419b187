package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
)

// stopLimit bounds how long the components may take to stop, all together.
const stopLimit = 20 * time.Second

// errStarterGone ends a run whose starter has stopped it or is gone.
var errStarterGone = errors.New("the starter has ended")

// Run is the supervisor: it returns the exit code when the cluster is down. It
// has the signature of sandbox.Supervisor.
func Run(dir string, control io.Reader, events io.Writer) int {
	// Whoever became root with su may lack the folders that mkfs and iptables
	// are in.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := &supervisor{dir: dir, layout: config.Layout{Dir: config.Inside}, events: events}
	run, err := config.Load[config.Run](s.layout.Config())
	if err != nil {
		s.report(config.Status{Phase: config.PhaseFailed, Reason: err.Error()})
		return 1
	}
	s.run = run

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(component.ErrStopped)
	}()
	if !run.Detached {
		go func() {
			_, _ = io.Copy(io.Discard, control) // any end is the end
			cancel(errStarterGone)
		}()
	}

	code := 0
	err = s.serve(ctx)
	if !errors.Is(err, component.ErrStopped) && !errors.Is(err, errStarterGone) {
		code = 1
		s.report(config.Status{Phase: config.PhaseFailed, Reason: err.Error()})
	}
	if err := s.takeDown(); err != nil {
		fmt.Fprintln(os.Stderr, "take down:", err)
		code = 1
	}
	if code == 0 {
		s.report(config.Status{Phase: config.PhaseStopped})
	}
	if run.Detached {
		return code // the logs stay until somebody says down
	}
	// The starter may still want to read the logs; they go when it does, unless
	// somebody else says down, who removes them himself.
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errStarterGone) {
		return code
	}
	if err := s.removeState(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// supervisor is one run. Its fields are set before anything is started.
type supervisor struct {
	dir    string // on the host
	layout config.Layout
	run    config.Run

	mu     sync.Mutex
	events io.Writer
}

// serve brings the cluster up and returns why it ended. All processes have been
// told to stop by then.
func (s *supervisor) serve(ctx context.Context) error {
	g := component.New(component.Logs{Dir: s.layout.Logs()}, func(e component.Event) {
		s.report(config.Status{Phase: config.PhaseStarting, Unit: e.Unit, Took: e.Took, Since: e.Since})
	})
	defer func() {
		limited, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		g.Stop(limited)
	}()
	begin := time.Now()
	units, err := s.plan(g)
	if err != nil {
		return err
	}
	if err := g.Start(ctx, units...); err != nil {
		return err
	}
	s.report(config.Status{Phase: config.PhaseReady, Since: time.Since(begin)})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.Done():
		return g.Err()
	}
}

// report tells the starter and keeps what is about the whole cluster.
func (s *supervisor) report(status config.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status.Unit == "" || status.Phase != config.PhaseStarting {
		if err := config.Save(s.layout.Status(), status); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	// A starter that no longer listens does not matter.
	_ = json.NewEncoder(s.events).Encode(status)
}
