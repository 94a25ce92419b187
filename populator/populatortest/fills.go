package populatortest

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

func (s *session) start(ctx context.Context, source *populatorv1.Source, id string, v *populatorv1.Volume) (*populatorv1.Fill, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := s.client.StartFill(ctx, startRequest(source, id, v))
	return answer.GetFill(), err
}

func (s *session) get(ctx context.Context, id string, v *populatorv1.Volume) (*populatorv1.Fill, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := s.client.GetFill(ctx, &populatorv1.GetFillRequest{Id: id, Volume: v})
	return answer.GetFill(), err
}

func (s *session) cleanup(ctx context.Context, id string, v *populatorv1.Volume, handedOver bool) (*populatorv1.CleanupFillResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.client.CleanupFill(ctx, &populatorv1.CleanupFillRequest{Id: id, Volume: v, HandedOver: handedOver})
}

// mustStart starts a fill. A plugin that is busy is asked again.
func (s *session) mustStart(t T, source *populatorv1.Source, id string, v *populatorv1.Volume) *populatorv1.Fill {
	t.Helper()
	var fill *populatorv1.Fill
	s.poll(t, "StartFill is RESOURCE_EXHAUSTED all the time", func() bool {
		var err error
		fill, err = s.start(t.Context(), source, id, v)
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("StartFill: %v", err)
		}
		return err == nil
	})
	checkFill(t, "StartFill", fill, id, v)
	return fill
}

func (s *session) mustGet(t T, id string, v *populatorv1.Volume) *populatorv1.Fill {
	t.Helper()
	fill, err := s.get(t.Context(), id, v)
	if err != nil {
		t.Fatalf("GetFill of a fill that was started: %v", err)
	}
	checkFill(t, "GetFill", fill, id, v)
	return fill
}

// await asks for a fill until it has ended, and checks that its progress does not
// go backwards.
func (s *session) await(t T, id string, v *populatorv1.Volume) *populatorv1.Fill {
	t.Helper()
	var fill *populatorv1.Fill
	var done int64
	s.poll(t, "the fill does not end", func() bool {
		fill = s.mustGet(t, id, v)
		if fill.GetState() != populatorv1.Fill_STATE_FAILED && fill.GetBytesDone() < done {
			t.Errorf("bytes_done went back from %d to %d", done, fill.GetBytesDone())
		}
		done = max(done, fill.GetBytesDone())
		return ended(fill)
	})
	return fill
}

// cleanUp has a fill cleaned up until it is done.
func (s *session) cleanUp(t T, id string, v *populatorv1.Volume, handedOver bool) {
	t.Helper()
	s.poll(t, "CleanupFill is not done", func() bool {
		answer, err := s.cleanup(t.Context(), id, v, handedOver)
		switch status.Code(err) {
		case codes.OK:
			if d := answer.GetRetryAfter(); d != nil && !answer.GetDone() && (d.AsDuration() < 0 || d.AsDuration() > time.Minute) {
				t.Errorf("CleanupFill says to ask again after %s, want at most a minute", d.AsDuration())
			}
			return answer.GetDone()
		case codes.NotFound, codes.InvalidArgument:
			// As if done; and an id that cannot be one.
			return true
		case codes.Unavailable, codes.ResourceExhausted:
			return false
		default:
			t.Fatalf("CleanupFill: %v", err)
			return true
		}
	})
}

// poll tries until it is true, or for as long as a fill may take.
func (s *session) poll(t T, never string, try func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.FillTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s, for %s", never, s.FillTimeout)
		}
	}
}

func ended(f *populatorv1.Fill) bool {
	return f.GetState() == populatorv1.Fill_STATE_SUCCEEDED || f.GetState() == populatorv1.Fill_STATE_FAILED
}

// checkFill checks an answer about a fill.
func checkFill(t T, method string, f *populatorv1.Fill, id string, v *populatorv1.Volume) {
	t.Helper()
	if f == nil {
		t.Fatalf("%s answers without a fill", method)
	}
	if f.GetId() != id {
		t.Errorf("%s answers about fill %q, asked about %q", method, f.GetId(), id)
	}
	if f.GetCsiHandle() != v.GetCsiHandle() {
		t.Errorf("%s answers about volume %q, asked about %q", method, f.GetCsiHandle(), v.GetCsiHandle())
	}
	if f.GetBytesDone() < 0 || f.GetBytesTotal() < 0 {
		t.Errorf("%s says %d of %d bytes, want none below 0", method, f.GetBytesDone(), f.GetBytesTotal())
	}
	if f.GetBytesTotal() > 0 && f.GetBytesDone() > f.GetBytesTotal() {
		t.Errorf("%s says that %d bytes of %d are done", method, f.GetBytesDone(), f.GetBytesTotal())
	}
	switch f.GetState() {
	case populatorv1.Fill_STATE_FAILED:
		if f.GetFailure() == nil {
			t.Errorf("%s answers FAILED without a failure", method)
			return
		}
		checkFailure(t, f.GetFailure())
	case populatorv1.Fill_STATE_RUNNING, populatorv1.Fill_STATE_UNSPECIFIED:
		if d := f.GetRetryAfter(); d != nil && (d.AsDuration() < time.Second || d.AsDuration() > 5*time.Minute) {
			t.Errorf("%s says to ask again after %s, want 1 s to 5 min", method, d.AsDuration())
		}
		if f.GetMessage() != "" {
			if err := said(f.GetMessage()); err != nil {
				t.Errorf("the message of a fill that runs: %v: %.80q", err, f.GetMessage())
			}
		}
	case populatorv1.Fill_STATE_SUCCEEDED:
	default:
		t.Errorf("%s answers with state %d, which the contract does not have", method, f.GetState())
	}
	if f.GetState() != populatorv1.Fill_STATE_FAILED && f.GetFailure() != nil {
		t.Errorf("%s answers %s with a failure: %v", method, f.GetState(), f.GetFailure())
	}
}

// checkFilled checks that a fill succeeded and that the volume says so, too.
func (s *session) checkFilled(t T, f *populatorv1.Fill, v *populatorv1.Volume) {
	t.Helper()
	if f.GetState() != populatorv1.Fill_STATE_SUCCEEDED {
		t.Fatalf("the fill ended as %s (%v), want it to succeed", f.GetState(), f.GetFailure())
	}
	if s.Filled == nil {
		return
	}
	if err := s.Filled(v); err != nil {
		t.Errorf("the fill succeeded, but the volume does not hold the source: %v", err)
	}
}

// checkBegun checks that the plugin began to write once at most.
func (s *session) checkBegun(t T, id string, most int) {
	t.Helper()
	if s.Begun == nil {
		return
	}
	n, err := s.Begun(id)
	if err != nil {
		t.Fatalf("count begins of a fill: %v", err)
	}
	if n > most {
		t.Errorf("the plugin began to write %d times for one id, want at most %d", n, most)
	}
}
