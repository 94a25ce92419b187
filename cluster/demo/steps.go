package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// steps prints steps and how long they took. Steps may run side by side.
type steps struct {
	now   func() time.Time
	begin time.Time

	mu  sync.Mutex
	out io.Writer
}

func newSteps(out io.Writer, now func() time.Time) *steps {
	return &steps{now: now, begin: now(), out: out}
}

// do runs one step.
func (s *steps) do(what string, run func() error) error {
	s.line("%s …", what)
	begin := s.now()
	err := run()
	took := seconds(s.now().Sub(begin))
	if err != nil {
		s.line("%s: failed after %s", what, took)
		return err
	}
	s.line("%s: done in %s", what, took)
	return nil
}

// note prints a line about a step that runs.
func (s *steps) note(text string) { s.line("  %s", text) }

// since is the time since the first step.
func (s *steps) since() time.Duration { return s.now().Sub(s.begin) }

func (s *steps) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%8s  %s\n", seconds(s.since()), fmt.Sprintf(format, args...))
}

// seconds prints a duration for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
