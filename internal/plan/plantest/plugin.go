package plantest

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// The model plugin fills volumes on the storage's side. It keeps the contract
// sluice.populator.v1: it is idempotent by id, and after a clean-up it refuses a
// start that comes late. Its answers can be lost, it can be down for a call, it
// can fail, and it can lose its memory, whereupon what it was writing stops
// half way.

// fill is what the plugin knows of one filling.
type fill struct {
	id, volume string
	state      populate.FillState
	// cleaned says that it was ended for good.
	cleaned bool
}

// reply is an answer that the manager's process remembers.
type reply struct {
	claim types.UID
	populate.Answer
}

// pollAgain and callAgain are when the plugin wants to be asked again, and when
// a call that failed is made again.
const (
	pollAgain = 5 * time.Second
	callAgain = time.Second
)

// answers are what the manager's process remembers for a claim.
func (s *state) answersFor(claim types.UID) []populate.Answer {
	var out []populate.Answer
	for _, r := range s.replies {
		if r.claim == claim {
			out = append(out, r.Answer)
		}
	}
	return out
}

// same says that a reply is of the matter of a call.
func same(r reply, c populate.CallPlugin) bool {
	cleanup := c.Call == populate.CallCleanup
	return r.claim == c.ClaimUID && r.ID == c.ID && (r.Call == populate.CallCleanup) == cleanup
}

// call takes a call: it is under way from now on. One that is under way is not
// made a second time.
func (s *state) call(c populate.CallPlugin) bool {
	if slices.ContainsFunc(s.calls, func(x populate.CallPlugin) bool { return x == c }) {
		return false
	}
	s.calls = append(s.calls, c)
	i := slices.IndexFunc(s.replies, func(r reply) bool { return same(r, c) })
	if i < 0 {
		s.replies = append(s.replies, reply{claim: c.ClaimUID, Answer: populate.Answer{Call: c.Call, ID: c.ID, Pending: true}})
		return true
	}
	s.replies[i].Call, s.replies[i].Pending = c.Call, true
	return true
}

// deliver brings an answer to the process that asked.
func (s *state) deliver(c populate.CallPlugin, a populate.Answer) {
	s.calls = slices.DeleteFunc(s.calls, func(x populate.CallPlugin) bool { return x == c })
	a.Call, a.ID, a.At = c.Call, c.ID, s.now
	for i := range s.replies {
		if same(s.replies[i], c) {
			s.replies[i].Answer = a
		}
	}
}

// forget is what a restart does to a manager's process. What it asked for may
// have been done, but the answers go nowhere.
func (s *state) forget() { s.calls, s.replies = nil, nil }

var noAnswer = populate.Answer{Unavailable: "no answer", Reason: v1alpha1.ReasonPluginUnavailable, RetryAfter: callAgain}

// lostAnswer is no answer to a call that the plugin had.
func lostAnswer() populate.Answer {
	a := noAnswer
	a.Doubtful = true
	return a
}

// serve is the plugin's part of a call.
func (s *state) serve(c populate.CallPlugin) populate.Answer {
	i := slices.IndexFunc(s.fills, func(f fill) bool { return f.id == c.ID })
	switch c.Call {
	case populate.CallStart:
		if i >= 0 && s.fills[i].cleaned {
			return populate.Answer{Failure: &populate.Failure{Reason: v1alpha1.ReasonPluginFailed, Message: "cleaned up"}}
		}
		if i < 0 {
			d := s.disk(c.Volume)
			if d == nil || d.destroyed || d.pv.UID != c.VolumeUID {
				return populate.Answer{Failure: &populate.Failure{Reason: v1alpha1.ReasonPluginFailed, Message: "no such volume"}}
			}
			s.fills = append(s.fills, fill{id: c.ID, volume: c.Volume})
			s.truth(d, func(d *disk) { d.writers = append(d.writers, types.UID(c.ID)) })
			return populate.Answer{RetryAfter: pollAgain}
		}
	case populate.CallStatus:
		if i < 0 || s.fills[i].cleaned {
			return populate.Answer{Unknown: true}
		}
	case populate.CallCleanup:
		if i < 0 {
			s.fills = append(s.fills, fill{id: c.ID, cleaned: true})
		} else {
			s.fills[i].cleaned = true
		}
		return populate.Answer{Done: true}
	default:
		s.breach("the plugin is asked for %s, which it does not serve", c.Call)
		return noAnswer
	}
	a := populate.Answer{State: s.fills[i].state, RetryAfter: pollAgain}
	if a.State == populate.FillFailed {
		a.Failure = &populate.Failure{Reason: v1alpha1.ReasonPluginFailed, Message: "failed"}
	}
	return a
}

// plugin lists what the plugin may do next.
func (s *state) plugin(add adder) {
	for _, c := range s.calls {
		add("plugin answers "+string(c.Call)+" "+c.ID, func(s *state) { s.deliver(c, s.serve(c)) })
	}
	for i, f := range s.fills {
		switch {
		case f.cleaned || f.state != populate.FillRunning:
		case s.sc.AlwaysFails:
			add("fill "+f.id+" fails", func(s *state) { s.fills[i].state = populate.FillFailed })
		default:
			add("fill "+f.id+" succeeds", func(s *state) { s.finish(i) })
		}
	}
}

func (s *state) finish(i int) {
	s.fills[i].state = populate.FillSucceeded
	if d := s.disk(s.fills[i].volume); d != nil && len(d.writers) > 0 && d.writers[0] == types.UID(s.fills[i].id) {
		s.truth(d, func(d *disk) { d.filled = true })
	}
}

// pluginTroubles is what goes wrong with the plugin.
func (s *state) pluginTroubles(add adder) {
	for _, c := range s.calls {
		add("plugin is down for "+string(c.Call)+" "+c.ID, func(s *state) { s.deliver(c, noAnswer) })
		add("the answer to "+string(c.Call)+" "+c.ID+" is lost", func(s *state) {
			s.serve(c)
			s.deliver(c, lostAnswer())
		})
	}
	if len(s.replies) > 0 {
		add("manager's process restarts", (*state).forget)
	}
	if len(s.fills) > 0 {
		add("plugin loses its memory", (*state).amnesia)
	}
	for i, f := range s.fills {
		if !f.cleaned && f.state == populate.FillRunning && !s.sc.AlwaysFails {
			add("fill "+f.id+" fails", func(s *state) { s.fills[i].state = populate.FillFailed })
		}
	}
}

// amnesia takes from the plugin what it knew of fills that were not cleaned up,
// in the middle of whatever it was asked. What it had filled is nobody's fault.
func (s *state) amnesia() {
	s.meddled = true
	s.fills = slices.DeleteFunc(s.fills, func(f fill) bool { return !f.cleaned })
	for _, c := range slices.Clone(s.calls) {
		s.deliver(c, lostAnswer())
	}
}

// awaitsPlugin says that a prime waits for its plugin.
func awaitsPlugin(p *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(p.Finalizers, v1alpha1.FinalizerPlugin)
}

// checkFills returns the first invariant of plugins that a state breaks.
func (s *state) checkFills() string {
	for _, f := range s.fills {
		if f.cleaned || f.state != populate.FillRunning || s.forced {
			continue
		}
		if d := s.disk(f.volume); d == nil || d.destroyed {
			return "F2: volume " + f.volume + " is gone while the plugin writes to it"
		}
	}
	return ""
}

// fillUnrest says what the plugin has left over at rest.
func (s *state) fillUnrest() string {
	for _, f := range s.fills {
		if !f.cleaned && !s.forced {
			return "F3: the plugin was never told to clean up fill " + f.id
		}
	}
	return ""
}
