package component

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrStopped is the cause of everything that ends because Stop was called.
var ErrStopped = errors.New("stopped")

// errEnded says that a program ended while its readiness was awaited.
var errEnded = errors.New("ended")

// Group starts units in the order of their needs and watches over them. Make
// one with New; it serves for one start and one stop.
type Group struct {
	logs     Logs
	onReady  func(Event)
	started  time.Time
	ctx      context.Context
	fail     context.CancelCauseFunc
	stopOnce sync.Once

	mu        sync.Mutex
	processes []*process // in the order of their start
	stopping  bool
}

// New returns an empty group. onReady is called once for each unit that became
// ready, from several goroutines; it may be nil.
func New(logs Logs, onReady func(Event)) *Group {
	if onReady == nil {
		onReady = func(Event) {}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Group{logs: logs, onReady: onReady, started: time.Now(), ctx: ctx, fail: cancel}
}

// Start starts the units and returns when all are ready, or with the first
// failure. It may be called again with further units. After a failure the
// caller calls Stop.
func (g *Group) Start(ctx context.Context, units ...Unit) error {
	ready, err := order(units)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })()

	var wg sync.WaitGroup
	for _, u := range units {
		wg.Go(func() {
			for _, need := range u.After {
				select {
				case <-ready[need]:
				case <-ctx.Done():
					return
				}
			}
			begin := time.Now()
			if err := g.run(ctx, u); err != nil {
				cancel(err)
				return
			}
			g.onReady(Event{Unit: u.Name, Took: time.Since(begin), Since: time.Since(g.started)})
			close(ready[u.Name])
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// run brings one unit to readiness within its deadline.
func (g *Group) run(ctx context.Context, u Unit) error {
	deadline := u.Deadline
	if deadline == 0 {
		deadline = defaultDeadline
	}
	bounded, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if u.Step != nil {
		err := u.Step(bounded)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case bounded.Err() != nil:
			return fmt.Errorf("%s: not done after %s: %w", u.Name, deadline, err)
		}
		return fmt.Errorf("%s: %w", u.Name, err)
	}

	p, err := g.launch(u)
	if err != nil {
		return err
	}
	if err := p.awaitReady(bounded, u.Command.Ready); err != nil {
		if errors.Is(err, errEnded) {
			<-g.ctx.Done() // launch's watcher says what it died of
			return g.Err()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: not ready after %s: %w\n%s", u.Name, deadline, err, g.logs.Tail(u.Name, tailLines))
	}
	return nil
}

// launch starts the unit's program and watches it: from now on its end fails
// the group, unless the group is stopping.
func (g *Group) launch(u Unit) (*process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return nil, ErrStopped
	}
	p, err := startProcess(u.Name, u.Command, g.logs)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", u.Name, err)
	}
	g.processes = append(g.processes, p)
	go func() {
		<-p.done
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.stopping {
			g.fail(fmt.Errorf("%s died: %v\n%s", u.Name, p.err, g.logs.Tail(u.Name, tailLines))) //nolint:errorlint // nil where it ended with code 0
		}
	}()
	return p, nil
}

// Serve runs fn, part of this process, in the background until the group
// stops; if it returns before, the group has failed.
func (g *Group) Serve(name string, fn func(ctx context.Context) error) {
	go func() {
		err := fn(g.ctx)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.stopping {
			g.fail(fmt.Errorf("%s ended: %w", name, err))
		}
	}()
}

// Done is closed when a component has died or the group was stopped.
func (g *Group) Done() <-chan struct{} { return g.ctx.Done() }

// Err says why the group ended: ErrStopped, or the death of a component with
// the end of its log; nil while it runs.
func (g *Group) Err() error { return context.Cause(g.ctx) }

// Stop ends the programs, the last started first, each with SIGTERM and, after
// its grace or when ctx ends, SIGKILL. It returns when all are gone.
func (g *Group) Stop(ctx context.Context) {
	g.stopOnce.Do(func() {
		g.mu.Lock()
		g.stopping = true
		processes := slices.Clone(g.processes)
		g.mu.Unlock()
		g.fail(ErrStopped)
		for _, p := range slices.Backward(processes) {
			p.stop(ctx)
		}
	})
}

// order checks that names are unique and needs can be met, and returns a
// channel per unit that is to be closed when the unit is ready.
func order(units []Unit) (map[string]chan struct{}, error) {
	ready := make(map[string]chan struct{}, len(units))
	for _, u := range units {
		if _, twice := ready[u.Name]; twice {
			return nil, fmt.Errorf("unit %q: given twice", u.Name)
		}
		if (u.Command == nil) == (u.Step == nil) {
			return nil, fmt.Errorf("unit %q: exactly one of command and step is needed", u.Name)
		}
		ready[u.Name] = make(chan struct{})
	}
	for left := units; len(left) > 0; {
		var blocked []Unit
		for _, u := range left {
			for _, need := range u.After {
				if _, known := ready[need]; !known {
					return nil, fmt.Errorf("unit %q: needs %q, which is not there", u.Name, need)
				}
			}
			if slices.ContainsFunc(left, func(o Unit) bool { return slices.Contains(u.After, o.Name) }) {
				blocked = append(blocked, u)
			}
		}
		if len(blocked) == len(left) {
			return nil, fmt.Errorf("unit %q: its needs form a circle", left[0].Name)
		}
		left = blocked
	}
	return ready, nil
}
