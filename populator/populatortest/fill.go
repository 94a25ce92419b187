package populatortest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var fillCases = []Case{
	{Name: "Fill/Succeeds", Rule: "A fill is started, runs and succeeds; the volume then holds the source.", run: fillSucceeds},
	{Name: "Fill/OutcomeStays", Rule: "The outcome of a fill is final: GetFill and StartFill answer with it until it is cleaned up.", run: fillOutcomeStays},
	{Name: "Fill/StartTwice", Rule: "StartFill of a known id begins nothing and answers as GetFill does.", run: fillStartTwice},
	{Name: "Fill/StartAtOnce", Rule: "StartFill of one id from several callers at once begins one fill.", run: fillStartAtOnce},
	{Name: "Fill/LostAnswer", Rule: "A StartFill whose answer was lost and is repeated begins one fill.", run: fillLostAnswer},
	{Name: "Fill/Unknown", Rule: "GetFill of an id that was never started is NOT_FOUND.", run: fillUnknown},
	{Name: "Fill/FailureSaid", Rule: "A fill that fails says why, in the words of the contract, and stays failed.", run: fillFailure},
	{Name: "Fill/InvalidSource", Rule: "A fill of an invalid source does not succeed, and says why.", run: fillInvalid},
	{Name: "Fill/Progress", Rule: "Progress does not go backwards and stays within its bounds.", run: fillProgress},
	{Name: "Fill/HostileID", Rule: "An id that is no UUID starts nothing, is not known, and reaches no file.", run: fillHostileID},
	{Name: "Fill/NoVolume", Rule: "Nothing is filled without a volume.", run: fillNoVolume},
	{Name: "Fill/SideBySide", Rule: "Fills of many volumes at once keep to their ids and volumes.", run: fillSideBySide},
}

func fillSucceeds(t T, s *session) {
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, source(t, s.Source), id, v)
	s.checkFilled(t, s.await(t, id, v), v)
	s.checkBegun(t, id, 1)
}

func fillOutcomeStays(t T, s *session) {
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, source(t, s.Source), id, v)
	s.checkFilled(t, s.await(t, id, v), v)
	for range 3 {
		if f := s.mustGet(t, id, v); f.GetState() != populatorv1.Fill_STATE_SUCCEEDED {
			t.Fatalf("GetFill of a fill that succeeded answers %s", f.GetState())
		}
		if f := s.mustStart(t, source(t, s.Source), id, v); f.GetState() != populatorv1.Fill_STATE_SUCCEEDED {
			t.Fatalf("StartFill of a fill that succeeded answers %s", f.GetState())
		}
	}
	s.checkBegun(t, id, 1)
}

// longest is the source that a fill takes longest for.
func (s *session) longest() []byte {
	if len(s.Slow) > 0 {
		return s.Slow
	}
	return s.Source
}

func fillStartTwice(t T, s *session) {
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	for range 3 {
		s.mustStart(t, source(t, s.longest()), id, v)
		s.mustGet(t, id, v)
	}
	s.checkBegun(t, id, 1)
}

func fillStartAtOnce(t T, s *session) {
	id, v, from := newID(), s.volume(t), source(t, s.longest())
	defer s.cleanUp(t, id, v, false)
	const callers = 8
	errs := make(chan error, callers)
	for range callers {
		go func() {
			_, err := s.start(t.Context(), from, id, v)
			errs <- err
		}()
	}
	begun := false
	for range callers {
		err := <-errs
		begun = begun || err == nil
		if err != nil && status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Unavailable && status.Code(err) != codes.Aborted {
			t.Errorf("StartFill beside others of the same id: %v", err)
		}
	}
	if !begun {
		t.Errorf("none of %d StartFill at once was taken", callers)
	}
	s.mustGet(t, id, v)
	s.checkBegun(t, id, 1)
}

func fillLostAnswer(t T, s *session) {
	id, v, from := newID(), s.volume(t), source(t, s.Source)
	defer s.cleanUp(t, id, v, false)
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*400*time.Microsecond)
		if _, err := s.start(ctx, from, id, v); err != nil && status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("StartFill whose caller goes away: %v", err)
		}
		cancel()
	}
	s.mustStart(t, from, id, v)
	s.checkFilled(t, s.await(t, id, v), v)
	s.checkBegun(t, id, 1)
}

func fillUnknown(t T, s *session) {
	got, err := s.get(t.Context(), newID(), s.volume(t))
	if status.Code(err) != codes.NotFound {
		t.Errorf("GetFill of an id that was never started: got %v, %v; want NOT_FOUND", got, err)
	}
}

func fillFailure(t T, s *session) {
	failing := optional(t, s.Failing, "failing")
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, failing, id, v)
	if f := s.await(t, id, v); f.GetState() != populatorv1.Fill_STATE_FAILED {
		t.Fatalf("the fill of a failing source ends as %s", f.GetState())
	}
	if f := s.mustStart(t, failing, id, v); f.GetState() != populatorv1.Fill_STATE_FAILED {
		t.Errorf("StartFill of a fill that failed answers %s; another attempt has another id", f.GetState())
	}
	if f := s.mustGet(t, id, v); f.GetState() != populatorv1.Fill_STATE_FAILED {
		t.Errorf("GetFill of a fill that failed answers %s", f.GetState())
	}
}

func fillInvalid(t T, s *session) {
	invalid := optional(t, s.Invalid, "invalid")
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	_, err := s.start(t.Context(), invalid, id, v)
	if err != nil {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("StartFill of an invalid source: %v; want INVALID_ARGUMENT or a failure", err)
		}
		return
	}
	if f := s.await(t, id, v); f.GetState() != populatorv1.Fill_STATE_FAILED {
		t.Errorf("the fill of an invalid source ends as %s", f.GetState())
	}
}

func fillProgress(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, slow, id, v)
	var done int64
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 10 {
		f := s.mustGet(t, id, v)
		if f.GetBytesDone() < done {
			t.Errorf("bytes_done went back from %d to %d", done, f.GetBytesDone())
		}
		done = max(done, f.GetBytesDone())
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%v", context.Cause(t.Context()))
		}
	}
}

func fillSideBySide(t T, s *session) {
	type one struct {
		id string
		v  *populatorv1.Volume
		f  *populatorv1.Fill
	}
	fills := make([]one, 12)
	var all sync.WaitGroup
	var mu sync.Mutex // for t, whose methods are called by one goroutine at a time
	for i := range fills {
		fills[i] = one{id: newID(), v: s.volume(t)}
		defer s.cleanUp(t, fills[i].id, fills[i].v, false)
	}
	from := source(t, s.Source)
	for i := range fills {
		all.Go(func() {
			f, err := s.run(t.Context(), from, fills[i].id, fills[i].v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("a fill beside others: %v", err)
				return
			}
			fills[i].f = f
		})
	}
	all.Wait()
	for _, one := range fills {
		if one.f != nil {
			checkFill(t, "GetFill", one.f, one.id, one.v)
			s.checkFilled(t, one.f, one.v)
			s.checkBegun(t, one.id, 1)
		}
	}
}

// run starts a fill and asks for it until it has ended, as one of many callers.
func (s *session) run(ctx context.Context, from *populatorv1.Source, id string, v *populatorv1.Volume) (*populatorv1.Fill, error) {
	ctx, cancel := context.WithTimeout(ctx, s.FillTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	started := false
	for {
		var f *populatorv1.Fill
		var err error
		if started {
			f, err = s.get(ctx, id, v)
		} else {
			f, err = s.start(ctx, from, id, v)
			started = err == nil
		}
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			return nil, err
		}
		if err == nil && ended(f) {
			return f, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func fillHostileID(t T, s *session) {
	for _, id := range []string{"", ".", "..", "../../../../tmp/sluice-conformance", "/etc/passwd", "a/b", "id\x00", "id\nid", "id;id", strings.Repeat("x", 64<<10)} {
		shown := fmt.Sprintf("%.40q", id)
		v := s.volume(t)
		if got, err := s.start(t.Context(), source(t, s.Source), id, v); err == nil || unanswered(err) {
			t.Errorf("StartFill with id %s: got %v, %v; want it refused", shown, got, err)
		}
		if got, err := s.get(t.Context(), id, v); err == nil || unanswered(err) {
			t.Errorf("GetFill with id %s: got %v, %v; want NOT_FOUND or INVALID_ARGUMENT", shown, got, err)
		}
		if got, err := s.cleanup(t.Context(), id, v, false); err == nil && !got.GetDone() || unanswered(err) {
			t.Errorf("CleanupFill with id %s: got %v, %v; want done or INVALID_ARGUMENT", shown, got, err)
		}
	}
	s.alive(t)
}

func fillNoVolume(t T, s *session) {
	id := newID()
	defer s.cleanUp(t, id, nil, false)
	r := s.method("StartFill")
	answer, err := s.invoke(t.Context(), r, startRequest(source(t, s.Source), id, nil))
	if !refusal(answer, err) {
		t.Errorf("StartFill without a volume: got %v, %v; want it refused", answer, err)
	}
	s.alive(t)
}
