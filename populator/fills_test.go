package populator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/populator"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// await asks for a fill until it has ended.
func await(t *testing.T, s served, id string) *populatorv1.Fill {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := s.client.GetFill(ctx, &populatorv1.GetFillRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetFill().GetState() != populatorv1.Fill_STATE_RUNNING {
			return answer.GetFill()
		}
		<-tick.C
	}
}

func TestAFunctionsEnd(t *testing.T) {
	cases := map[string]struct {
		reason string
		fill   populator.FillFunc[Greeting]
		state  populatorv1.Fill_State
		want   *populatorv1.Failure
	}{
		"Done": {
			"it returns without an error", func(context.Context, populator.Fill[Greeting], func(populator.Progress)) (string, error) {
				return "sha256:00", nil
			}, populatorv1.Fill_STATE_SUCCEEDED, nil,
		},
		"Error": {
			"any error is a failure, for a function has ended", func(context.Context, populator.Fill[Greeting], func(populator.Progress)) (string, error) {
				return "", errors.New("disk is full")
			}, populatorv1.Fill_STATE_FAILED, &populatorv1.Failure{Message: "disk is full"},
		},
		"Reason": {
			"a reason goes with it", func(context.Context, populator.Fill[Greeting], func(populator.Progress)) (string, error) {
				return "", populator.Permanent(populator.Truncated.Errorf("half of it"))
			}, populatorv1.Fill_STATE_FAILED, &populatorv1.Failure{Reason: "Truncated", Message: "half of it", Permanent: true},
		},
		"Panic": {
			"a panic is one, too, and not the program's end", func(context.Context, populator.Fill[Greeting], func(populator.Progress)) (string, error) {
				panic("nil map")
			}, populatorv1.Fill_STATE_FAILED, &populatorv1.Failure{Message: "the plugin panicked while it filled"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t, filling(t, 1, c.fill))
			if _, err := s.client.StartFill(t.Context(), startRequest("a")); err != nil {
				t.Fatal(err)
			}
			got := await(t, s, "a")
			if got.GetState() != c.state || got.GetFailure().GetMessage() != c.want.GetMessage() ||
				got.GetFailure().GetReason() != c.want.GetReason() || got.GetFailure().GetPermanent() != c.want.GetPermanent() {
				t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
			}
		})
	}
}

func TestFunctionsWaitForTheirTurn(t *testing.T) {
	end := make(chan struct{})
	s := serve(t, filling(t, 1, func(context.Context, populator.Fill[Greeting], func(populator.Progress)) (string, error) {
		<-end
		return "", nil
	}))
	if _, err := s.client.StartFill(t.Context(), startRequest("a")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.client.StartFill(t.Context(), startRequest("b")); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second fill of a plugin for one: got %v, want RESOURCE_EXHAUSTED", err)
		}
	}
	close(end)
	await(t, s, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := s.client.StartFill(ctx, startRequest("b"))
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("a fill whose turn has come: %v", err)
		}
	}
	if got := await(t, s, "b"); got.GetState() != populatorv1.Fill_STATE_SUCCEEDED {
		t.Errorf("got %v, want the fill that had to wait done", got)
	}
}

func TestAPluginThatStopsNotesItsFills(t *testing.T) {
	dir := t.TempDir()
	running := make(chan struct{})
	p := filling(t, 1, func(ctx context.Context, _ populator.Fill[Greeting], report func(populator.Progress)) (string, error) {
		report(populator.Progress{BytesDone: 7, BytesTotal: 9})
		close(running)
		<-ctx.Done()
		return "", ctx.Err()
	})
	p.Journal = journal(t, dir)
	s := serve(t, p)
	if _, err := s.client.StartFill(t.Context(), startRequest("a")); err != nil {
		t.Fatal(err)
	}
	<-running
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	e, ok, err := journal(t, dir).Get(t.Context(), "a")
	if err != nil || !ok || e.Stage != populator.StageFailed || !strings.Contains(e.Message, "stopped") || e.Permanent {
		t.Errorf("journal has %v, %v, %v; want a failure that another attempt gets around", e, ok, err)
	}
	if e.Progress.BytesDone != 7 || e.Handle != "vol-1" {
		t.Errorf("journal has %v, want the progress and the volume", e)
	}
}

func TestAStorageThatForgets(t *testing.T) {
	known := false
	p := populator.Plugin[Greeting]{
		Name: "greeting.example.com", Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}}, Journal: populator.MemoryJournal(),
		Filler: populator.FillerFuncs[Greeting]{
			StartFunc: func(context.Context, populator.Fill[Greeting]) error { known = true; return nil },
			StatusFunc: func(context.Context, populator.FillRef) (populator.Status, error) {
				if !known {
					return populator.Status{}, populator.ErrUnknownFill
				}
				return populator.Status{}, nil
			},
		},
	}
	s := serve(t, p)
	if _, err := s.client.StartFill(t.Context(), startRequest("a")); err != nil {
		t.Fatal(err)
	}
	known = false
	answer, err := s.client.StartFill(t.Context(), startRequest("a"))
	if err != nil || answer.GetFill().GetState() != populatorv1.Fill_STATE_FAILED || known {
		t.Errorf("a fill that the storage lost: got %v, %v, started again %v; want it failed", answer, err, known)
	}
}

func TestAStartThatFailedIsRepeated(t *testing.T) {
	calls := 0
	p := populator.Plugin[Greeting]{
		Name: "greeting.example.com", Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}}, Journal: populator.MemoryJournal(),
		Filler: populator.FillerFuncs[Greeting]{
			StartFunc: func(context.Context, populator.Fill[Greeting]) error {
				if calls++; calls == 1 {
					return errors.New("storage answers 503")
				}
				return nil
			},
			StatusFunc: func(context.Context, populator.FillRef) (populator.Status, error) {
				if calls < 2 {
					return populator.Status{}, populator.ErrUnknownFill
				}
				return populator.Status{State: populator.Succeeded}, nil
			},
		},
	}
	s := serve(t, p)
	if _, err := s.client.StartFill(t.Context(), startRequest("a")); status.Code(err) != codes.Unavailable {
		t.Fatalf("a start that failed: got %v, want UNAVAILABLE", err)
	}
	if _, err := s.client.StartFill(t.Context(), startRequest("a")); err != nil {
		t.Fatal(err)
	}
	if got := await(t, s, "a"); got.GetState() != populatorv1.Fill_STATE_SUCCEEDED || calls != 2 {
		t.Errorf("got %v after %d starts, want success after 2", got, calls)
	}
}

func TestJournalForgetsWhatIsLongOver(t *testing.T) {
	dir := t.TempDir()
	j := journal(t, dir)
	for id, e := range map[string]populator.Entry{
		"new": {Stage: populator.StageCleaned, Time: time.Now()},
		"old": {Stage: populator.StageCleaned, Time: time.Now().Add(-3 * time.Hour)},
		"run": {Stage: populator.StageStarted, Time: time.Now().Add(-300 * time.Hour)},
	} {
		if err := j.Put(t.Context(), id, e); err != nil {
			t.Fatal(err)
		}
	}
	j = journal(t, dir)
	for id, want := range map[string]bool{"new": true, "old": false, "run": true} {
		if _, ok, err := j.Get(t.Context(), id); err != nil || ok != want {
			t.Errorf("entry %q: got %v, %v; want %v", id, ok, err, want)
		}
	}
}

func TestAStartThatMayHaveBegun(t *testing.T) {
	cases := map[string]struct {
		reason        string
		start, status error
		want          codes.Code
	}{
		"Nobody knows":     {"no promise is made", errors.New("time-out"), errors.New("time-out"), codes.Internal},
		"The storage says": {"it knows no such job", errors.New("time-out"), populator.ErrUnknownFill, codes.Unavailable},
		"The plugin says":  {"it was not reached", populator.Unavailable(errors.New("refused")), populator.ErrUnknownFill, codes.Unavailable},
		"Begun after all":  {"the job is there", errors.New("time-out"), nil, codes.OK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			begun := false
			s := serve(t, populator.Plugin[Greeting]{
				Name: "greeting.example.com", Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}}, Journal: populator.MemoryJournal(),
				Filler: populator.FillerFuncs[Greeting]{
					StartFunc: func(context.Context, populator.Fill[Greeting]) error { begun = true; return c.start },
					StatusFunc: func(context.Context, populator.FillRef) (populator.Status, error) {
						if !begun {
							return populator.Status{}, populator.ErrUnknownFill
						}
						return populator.Status{}, c.status
					},
				},
			})
			if got, err := s.client.StartFill(t.Context(), startRequest("a")); status.Code(err) != c.want {
				t.Errorf("%s: got %v, %v; want %s", c.reason, got, err, c.want)
			}
		})
	}
}
