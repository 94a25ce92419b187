package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSteps(t *testing.T) {
	now := time.Unix(0, 0)
	var out strings.Builder
	s := newSteps(&out, func() time.Time { return now })
	pass := func(d time.Duration) func() error {
		return func() error { now = now.Add(d); return nil }
	}
	if err := s.do("starting", pass(1500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	s.note("node1 is ready")
	if err := s.do("failing", func() error { now = now.Add(time.Second); return errors.New("no") }); err == nil {
		t.Error("do hides the error of a step")
	}
	want := "   0.0 s  starting …\n   1.5 s  starting: done in 1.5 s\n   1.5 s    node1 is ready\n" +
		"   1.5 s  failing …\n   2.5 s  failing: failed after 1.0 s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
