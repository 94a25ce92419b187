package component

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// script returns a command that runs a shell script.
func script(text string) *Command {
	return &Command{Path: "/bin/sh", Args: []string{"-c", text}, Grace: time.Second}
}

func newGroup(t *testing.T, onReady func(Event)) *Group {
	t.Helper()
	g := New(Logs{Dir: t.TempDir()}, onReady)
	t.Cleanup(func() { g.Stop(context.Background()) }) //nolint:usetesting // t.Context has ended by then
	return g
}

func TestStartOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	g := newGroup(t, func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, e.Unit)
	})
	nothing := func(context.Context) error { return nil }
	err := g.Start(t.Context(),
		Unit{Name: "last", After: []string{"server", "step"}, Step: nothing},
		Unit{Name: "step", After: []string{"server"}, Step: nothing},
		Unit{Name: "server", Command: script("exec sleep 60")},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "server step last"; got != want {
		t.Errorf("order: got %q, want %q", got, want)
	}
	select {
	case <-g.Done():
		t.Errorf("the group has ended: %v", g.Err())
	default:
	}
}

func TestStartRefusesWrongUnits(t *testing.T) {
	step := func(context.Context) error { return nil }
	cases := map[string]struct {
		reason string
		units  []Unit
		want   string
	}{
		"twice": {
			reason: "names are how units refer to each other",
			units:  []Unit{{Name: "a", Step: step}, {Name: "a", Step: step}},
			want:   `unit "a": given twice`,
		},
		"unknown need": {
			reason: "it would wait for ever",
			units:  []Unit{{Name: "a", Step: step, After: []string{"b"}}},
			want:   `unit "a": needs "b", which is not there`,
		},
		"circle": {
			reason: "each would wait for the other",
			units:  []Unit{{Name: "a", Step: step, After: []string{"b"}}, {Name: "b", Step: step, After: []string{"a"}}},
			want:   "circle",
		},
		"needs itself": {
			reason: "the smallest circle",
			units:  []Unit{{Name: "a", Step: step, After: []string{"a"}}},
			want:   "circle",
		},
		"nothing to do": {
			reason: "neither command nor step",
			units:  []Unit{{Name: "a"}},
			want:   "exactly one of command and step",
		},
		"two things to do": {
			reason: "both command and step",
			units:  []Unit{{Name: "a", Step: step, Command: script("")}},
			want:   "exactly one of command and step",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := newGroup(t, nil).Start(t.Context(), tc.units...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q (%s)", err, tc.want, tc.reason)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	never := func(context.Context) error { return errors.New("not yet") }
	cases := map[string]struct {
		reason string
		unit   Unit
		want   []string
	}{
		"program is missing": {
			reason: "the path is in the error",
			unit:   Unit{Name: "gone", Command: &Command{Path: "/no/such/program"}},
			want:   []string{"start gone", "/no/such/program"},
		},
		"program dies before it is ready": {
			reason: "its log says why",
			unit:   Unit{Name: "dying", Command: &Command{Path: "/bin/sh", Args: []string{"-c", "echo a reason; exit 3"}, Ready: never}},
			want:   []string{"dying died: exit status 3", "a reason"},
		},
		"program is never ready": {
			reason: "the last answer of the probe and the log are shown",
			unit: Unit{
				Name: "slow", Deadline: 200 * time.Millisecond,
				Command: &Command{Path: "/bin/sh", Args: []string{"-c", "echo waiting; exec sleep 60"}, Ready: never},
			},
			want: []string{"slow: not ready after 200ms", "not yet", "waiting"},
		},
		"step fails": {
			reason: "its error is passed on",
			unit:   Unit{Name: "step", Step: func(context.Context) error { return errors.New("no luck") }},
			want:   []string{"step: no luck"},
		},
		"step takes too long": {
			reason: "the deadline is named",
			unit: Unit{Name: "step", Deadline: 50 * time.Millisecond, Step: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}},
			want: []string{"step: not done after 50ms"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := newGroup(t, nil).Start(t.Context(), tc.unit)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q (%s)", err, want, tc.reason)
				}
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("changed my mind")
	g := newGroup(t, nil)
	err := g.Start(ctx, Unit{Name: "step", Step: func(ctx context.Context) error {
		cancel(cause)
		<-ctx.Done()
		return ctx.Err()
	}})
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestDeathEndsTheGroup(t *testing.T) {
	g := newGroup(t, nil)
	flag := filepath.Join(t.TempDir(), "die")
	program := script(`echo last words; until [ -e "$FLAG" ]; do sleep 0.02; done; exit 7`)
	program.Env = []string{"FLAG=" + flag}
	if err := g.Start(t.Context(), Unit{Name: "server", Command: program}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not noticed")
	}
	for _, want := range []string{"server died: exit status 7", "last words"} {
		if got := g.Err(); !strings.Contains(got.Error(), want) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

func TestServiceEndsTheGroup(t *testing.T) {
	g := newGroup(t, nil)
	cause := errors.New("address taken")
	g.Serve("registry", func(context.Context) error { return cause })
	select {
	case <-g.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not noticed")
	}
	if !errors.Is(g.Err(), cause) {
		t.Errorf("got %v, want %v", g.Err(), cause)
	}
}

// TestStop shows the order and that a program which does not listen is killed
// after its grace, with what it started.
func TestStop(t *testing.T) {
	dir := t.TempDir()
	record := func(name string) *Command {
		c := script(`trap 'echo "$NAME" >> "$OUT"; exit 0' TERM; touch "$NAME_FILE"; while :; do sleep 0.02; done`)
		c.Env = []string{"NAME=" + name, "OUT=" + filepath.Join(dir, "out"), "NAME_FILE=" + filepath.Join(dir, name)}
		c.Ready = File(filepath.Join(dir, name))
		return c
	}
	deaf := script(`trap '' TERM; touch "$FILE"; while :; do sleep 0.02; done`)
	deaf.Env = []string{"FILE=" + filepath.Join(dir, "deaf")}
	deaf.Ready = File(filepath.Join(dir, "deaf"))
	deaf.Grace = 50 * time.Millisecond

	g := newGroup(t, nil)
	err := g.Start(t.Context(),
		Unit{Name: "first", Command: record("first")},
		Unit{Name: "second", After: []string{"first"}, Command: record("second")},
		Unit{Name: "deaf", After: []string{"second"}, Command: deaf},
	)
	if err != nil {
		t.Fatal(err)
	}
	g.Stop(t.Context())
	out, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), "second\nfirst\n"; got != want {
		t.Errorf("order: got %q, want %q", got, want)
	}
	if !errors.Is(g.Err(), ErrStopped) {
		t.Errorf("reason: got %v, want %v", g.Err(), ErrStopped)
	}
	if err := g.Start(t.Context(), Unit{Name: "late", Command: script("exec sleep 60")}); !errors.Is(err, ErrStopped) {
		t.Errorf("start after stop: got %v, want %v", err, ErrStopped)
	}
}

func TestTail(t *testing.T) {
	logs := Logs{Dir: t.TempDir()}
	long := strings.Repeat("x", tailBytes) + "\none\ntwo\nthree\n"
	if err := os.WriteFile(filepath.Join(logs.Dir, "server.log"), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := logs.Tail("server", 2), "--- end of the log of server ---\ntwo\nthree\n---"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := logs.Tail("other", 2), "cannot be read"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
