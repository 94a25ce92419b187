package populatortest

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var cancelCases = []Case{
	{Name: "Cleanup/Unknown", Rule: "CleanupFill of an id that was never started is done.", run: cleanupUnknown},
	{Name: "Cleanup/Twice", Rule: "CleanupFill is done however often it is called, also by two at once and without the volume.", run: cleanupTwice},
	{Name: "Cleanup/Forgets", Rule: "A fill that was cleaned up is NOT_FOUND.", run: cleanupForgets},
	{Name: "Cleanup/KeepsTheVolume", Rule: "CleanupFill leaves a volume that was handed over as it is.", run: cleanupKeeps},
	{Name: "Cleanup/WhileRunning", Rule: "CleanupFill cancels a fill that runs.", run: cleanupRunning},
	{Name: "Cleanup/NothingWrites", Rule: "Nothing of a fill writes to the volume any more once CleanupFill is done.", run: cleanupNothingWrites},
	{Name: "Cleanup/BeforeStart", Rule: "A StartFill that comes after CleanupFill of its id is FAILED_PRECONDITION and begins nothing.", run: cleanupBeforeStart},
	{Name: "Cleanup/NoStartAfter", Rule: "A fill that ended and was cleaned up cannot be started again.", run: cleanupNoStart},
	{Name: "Cleanup/BesideStart", Rule: "StartFill and CleanupFill at once end with nothing that runs.", run: cleanupBesideStart},
}

func cleanupUnknown(t T, s *session) {
	answer, err := s.cleanup(t.Context(), newID(), s.volume(t), false)
	if status.Code(err) != codes.NotFound && (err != nil || !answer.GetDone()) {
		t.Errorf("CleanupFill of an unknown id: got %v, %v; want done", answer, err)
	}
}

func cleanupTwice(t T, s *session) {
	id, v := newID(), s.volume(t)
	s.mustStart(t, source(t, s.longest()), id, v)
	type result struct {
		answer *populatorv1.CleanupFillResponse
		err    error
	}
	results := make(chan result, 2)
	for range 2 {
		go func() {
			answer, err := s.cleanup(t.Context(), id, v, false)
			results <- result{answer, err}
		}()
	}
	for range 2 {
		r := <-results
		if r.err != nil && status.Code(r.err) != codes.NotFound && status.Code(r.err) != codes.Unavailable {
			t.Errorf("CleanupFill beside another: %v", r.err)
		}
	}
	s.cleanUp(t, id, v, false)
	for _, volume := range []*populatorv1.Volume{v, nil} {
		answer, err := s.cleanup(t.Context(), id, volume, false)
		if status.Code(err) != codes.NotFound && (err != nil || !answer.GetDone()) {
			t.Errorf("CleanupFill of a fill that is cleaned up (volume %q): got %v, %v; want done", volume.GetName(), answer, err)
		}
	}
}

func cleanupForgets(t T, s *session) {
	id, v := newID(), s.volume(t)
	s.mustStart(t, source(t, s.Source), id, v)
	s.await(t, id, v)
	s.cleanUp(t, id, v, false)
	if got, err := s.get(t.Context(), id, v); status.Code(err) != codes.NotFound {
		t.Errorf("GetFill after CleanupFill: got %v, %v; want NOT_FOUND", got, err)
	}
}

func cleanupKeeps(t T, s *session) {
	if s.Filled == nil {
		t.Skipf("the target cannot tell what is in a volume")
	}
	id, v := newID(), s.volume(t)
	s.mustStart(t, source(t, s.Source), id, v)
	s.checkFilled(t, s.await(t, id, v), v)
	s.cleanUp(t, id, v, true)
	if err := s.Filled(v); err != nil {
		t.Errorf("after CleanupFill the volume does not hold the source any more: %v", err)
	}
}

func cleanupRunning(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	id, v := newID(), s.volume(t)
	if f := s.mustStart(t, slow, id, v); ended(f) {
		t.Fatalf("the fill of the slow source has ended at once, as %s", f.GetState())
	}
	s.cleanUp(t, id, v, false)
	if got, err := s.get(t.Context(), id, v); status.Code(err) != codes.NotFound {
		t.Errorf("GetFill after a fill was cancelled: got %v, %v; want NOT_FOUND", got, err)
	}
}

// quiet is how long nothing may be written after a clean-up.
const quiet = time.Second

func cleanupNothingWrites(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	if s.Fingerprint == nil {
		t.Skipf("the target cannot tell what is in a volume")
	}
	id, v := newID(), s.volume(t)
	empty := s.fingerprint(t, v)
	s.mustStart(t, slow, id, v)
	s.poll(t, "the fill of the slow source writes nothing", func() bool { return s.fingerprint(t, v) != empty })
	s.cleanUp(t, id, v, false)
	s.checkQuiet(t, v)
}

func (s *session) fingerprint(t T, v *populatorv1.Volume) string {
	t.Helper()
	f, err := s.Fingerprint(v)
	if err != nil {
		t.Fatalf("look at the volume: %v", err)
	}
	return f
}

// checkQuiet checks for a while that a volume does not change.
func (s *session) checkQuiet(t T, v *populatorv1.Volume) {
	t.Helper()
	if s.Fingerprint == nil {
		return
	}
	before := s.fingerprint(t, v)
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.fingerprint(t, v) != before {
			t.Errorf("something writes to the volume after CleanupFill was done")
			return
		}
	}
}

func cleanupBeforeStart(t T, s *session) {
	id, v := newID(), s.volume(t)
	s.cleanUp(t, id, v, false)
	s.checkRefused(t, id, v)
	s.checkBegun(t, id, 0)
}

func cleanupNoStart(t T, s *session) {
	id, v := newID(), s.volume(t)
	s.mustStart(t, source(t, s.Source), id, v)
	s.await(t, id, v)
	s.cleanUp(t, id, v, false)
	s.checkRefused(t, id, v)
	s.checkBegun(t, id, 1)
}

// checkRefused checks that a fill which was cleaned up is not started.
func (s *session) checkRefused(t T, id string, v *populatorv1.Volume) {
	t.Helper()
	got, err := s.start(t.Context(), source(t, s.longest()), id, v)
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("StartFill after CleanupFill of its id: got %v, %v; want FAILED_PRECONDITION", got, err)
	}
	if err == nil {
		s.cleanUp(t, id, v, false)
	}
}

func cleanupBesideStart(t T, s *session) {
	from := source(t, s.longest())
	for range 10 {
		id, v := newID(), s.volume(t)
		started := make(chan error, 1)
		go func() {
			_, err := s.start(t.Context(), from, id, v)
			started <- err
		}()
		answer, err := s.cleanup(t.Context(), id, v, false)
		if err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.Unavailable {
			t.Errorf("CleanupFill beside StartFill: got %v, %v", answer, err)
		}
		// Either order of the two is right: that there is no fill left is what counts.
		if err := <-started; err != nil {
			t.Logf("StartFill beside CleanupFill: %v", err)
		}
		s.cleanUp(t, id, v, false)
		if got, err := s.get(t.Context(), id, v); status.Code(err) != codes.NotFound {
			t.Errorf("GetFill after StartFill and CleanupFill at once: got %v, %v; want NOT_FOUND", got, err)
		}
	}
}
