package populator

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestJudgePlugin(t *testing.T) {
	info := &v1alpha1.PluginInfo{Name: "vendor.example", Capabilities: []v1alpha1.PluginCapability{v1alpha1.PluginFills}}
	down := errors.New("no answer from the plugin at socket /run/sluice/x: refused")
	known := func(p *v1alpha1.Populator) { p.Status.Plugin = info }
	accepted := judged(metav1.ConditionTrue)
	now := time.Unix(1000, 0)
	cases := map[string]struct {
		reason string
		before []func(*v1alpha1.Populator)
		info   *v1alpha1.PluginInfo
		err    error
		silent time.Duration
		want   string // the verdict's reason; empty: none
		says   string
		again  time.Duration
		plugin *v1alpha1.PluginInfo
	}{
		"Answers": {
			reason: "A plugin that serves the kind is named, and asked again in a while.", info: info,
			want: v1alpha1.ReasonAccepted, says: `plugin "vendor.example"`, again: askAgain, plugin: info,
		},
		"NeverAnswered": {
			reason: "One that never answered is told of at once.", err: down,
			want: v1alpha1.ReasonPluginUnavailable, says: "No answer from the plugin at socket /run/sluice/x", again: askSooner,
		},
		"SilentForAMoment": {
			reason: "A roll-out of one that served is no news.", before: []func(*v1alpha1.Populator){accepted, known}, err: down, silent: silence - time.Second,
			again: askSooner,
		},
		"SilentForLong": {
			reason: "More than that is, and what it could do is remembered.", before: []func(*v1alpha1.Populator){accepted, known}, err: down, silent: silence,
			want: v1alpha1.ReasonPluginUnavailable, says: "No answer", again: askSooner, plugin: info,
		},
		"ChangedAndSilent": {
			reason: "A Populator that was changed has to be answered for anew.", err: down,
			before: []func(*v1alpha1.Populator){accepted, known, func(p *v1alpha1.Populator) { p.Generation = 2 }},
			want:   v1alpha1.ReasonPluginUnavailable, says: "No answer", again: askSooner, plugin: info,
		},
		"RefusedAndSilent": {
			reason: "One that was not accepted stays so.", before: []func(*v1alpha1.Populator){judged(metav1.ConditionFalse), known}, err: down,
			want: v1alpha1.ReasonPluginUnavailable, says: "No answer", again: askSooner, plugin: info,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := judgePlugin(hello("hello", tc.before...), tc.info, tc.err, now, now.Add(-tc.silent))
			if v.reason != tc.want || v.accepted != (tc.want == v1alpha1.ReasonAccepted) || !strings.Contains(v.message, tc.says) || v.again != tc.again || v.plugin != tc.plugin {
				t.Errorf("%s\nverdict is %+v, want reason %q, again after %s", tc.reason, v, tc.want, tc.again)
			}
		})
	}
}

func TestSilencesBeginAnew(t *testing.T) {
	var s silences
	begun := time.Unix(1000, 0)
	for _, step := range []struct {
		reason   string
		after    time.Duration
		answered bool
		want     time.Duration
	}{
		{"the first call without an answer begins a silence", 0, false, 0},
		{"more do not", 10 * time.Second, false, 0},
		{"an answer ends it", 20 * time.Second, true, 20 * time.Second},
		{"then another begins", 30 * time.Second, false, 30 * time.Second},
	} {
		if got := s.note("u", step.answered, begun.Add(step.after)); !got.Equal(begun.Add(step.want)) {
			t.Errorf("%s: silent since %s, want %s", step.reason, got, begun.Add(step.want))
		}
	}
}
