package populatortest

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var restartCases = []Case{
	{Name: "Restart/WhileRunning", Rule: "A fill that ran when the plugin crashed is known afterwards: it runs, or it has failed.", run: restartRunning},
	{Name: "Restart/NoSecondWriter", Rule: "StartFill after a crash begins no second time on a volume that was written to.", run: restartNoSecond},
	{Name: "Restart/AfterEnd", Rule: "The outcome of a fill outlives a crash.", run: restartAfterEnd},
	{Name: "Restart/CleansUp", Rule: "A fill that ran when the plugin crashed is cleaned up.", run: restartCleansUp},
	{Name: "Restart/AfterCleanup", Rule: "A fill that was cleaned up stays so: it cannot be started after a crash either.", run: restartAfterCleanup},
}

func restartRunning(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, slow, id, v)
	s.restart(t)
	f, err := s.get(t.Context(), id, v)
	if err != nil {
		t.Fatalf("GetFill of a fill that ran when the plugin crashed: %v; want it known", err)
	}
	checkFill(t, "GetFill", f, id, v)
	if f.GetState() == populatorv1.Fill_STATE_FAILED && f.GetFailure().GetPermanent() {
		t.Errorf("a fill that was lost by a crash has failed for good (%v); another attempt can succeed", f.GetFailure())
	}
}

func restartNoSecond(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, slow, id, v)
	s.restart(t)
	f, err := s.start(t.Context(), slow, id, v)
	if err != nil {
		t.Fatalf("StartFill of a fill that ran when the plugin crashed: %v; want an answer as of GetFill", err)
	}
	checkFill(t, "StartFill", f, id, v)
	s.checkBegun(t, id, 1)
}

func restartAfterEnd(t T, s *session) {
	id, v := newID(), s.volume(t)
	defer s.cleanUp(t, id, v, false)
	s.mustStart(t, source(t, s.Source), id, v)
	s.checkFilled(t, s.await(t, id, v), v)
	s.restart(t)
	if f := s.mustGet(t, id, v); f.GetState() != populatorv1.Fill_STATE_SUCCEEDED {
		t.Errorf("a fill that succeeded before a crash is %s afterwards", f.GetState())
	}
	s.checkBegun(t, id, 1)
}

func restartCleansUp(t T, s *session) {
	slow := optional(t, s.Slow, "slow")
	id, v := newID(), s.volume(t)
	s.mustStart(t, slow, id, v)
	s.restart(t)
	s.cleanUp(t, id, v, false)
	if got, err := s.get(t.Context(), id, v); status.Code(err) != codes.NotFound {
		t.Errorf("GetFill after a crash and CleanupFill: got %v, %v; want NOT_FOUND", got, err)
	}
	s.checkQuiet(t, v)
}

func restartAfterCleanup(t T, s *session) {
	id, v := newID(), s.volume(t)
	s.mustStart(t, source(t, s.longest()), id, v)
	s.cleanUp(t, id, v, false)
	s.restart(t)
	s.checkRefused(t, id, v)
	if answer, err := s.cleanup(t.Context(), id, v, false); status.Code(err) != codes.NotFound && (err != nil || !answer.GetDone()) {
		t.Errorf("CleanupFill again after a crash: got %v, %v; want done", answer, err)
	}
}
