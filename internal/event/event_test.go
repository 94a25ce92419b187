package event

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func TestTell(t *testing.T) {
	cases := map[string]struct {
		reason, message, want string
	}{
		"as it is":           {"most messages are short", "Volume \"v\" was filled", "Volume \"v\" was filled"},
		"no format":          {"a driver's text may hold percent signs", "90%s full", "90%s full"},
		"not text":           {"a worker may write anything", "a\xffb", "a?b"},
		"longer than it may": {"the API refuses longer ones", strings.Repeat("é", 1000), strings.Repeat("é", 510) + "..."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			to := events.NewFakeRecorder(1)
			New(to).Tell(&corev1.PersistentVolumeClaim{}, populate.Event{Type: corev1.EventTypeNormal, Reason: "Populated", Message: tc.message})
			got := <-to.Events
			if want := "Normal Populated " + tc.want; got != want {
				t.Errorf("%s: told %q, want %q", tc.reason, got, want)
			}
			if !utf8.ValidString(got) {
				t.Errorf("%s: %q is no text", tc.reason, got)
			}
		})
	}
}
