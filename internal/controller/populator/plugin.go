package populator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/registration"
)

const (
	// askAgain is how often a plugin that serves is asked whether it still does,
	// askSooner one that does not.
	askAgain  = 30 * time.Second
	askSooner = 5 * time.Second

	// silence is how long a plugin may be without an answer before its Populator
	// is not accepted any more: less is a roll-out.
	silence = time.Minute
)

// Plugins asks plugins who they are.
type Plugins interface {
	// Ask returns what the plugin of a Populator says of itself; an error, fit to
	// be shown, unless it serves the Populator's kind.
	Ask(ctx context.Context, p *v1alpha1.Populator) (*v1alpha1.PluginInfo, error)
}

// silences remembers since when plugins have had no good answer.
type silences struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

// note takes down whether there was an answer, and returns since when not.
func (s *silences) note(p types.UID, answered bool, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered {
		delete(s.since, p)
		return now
	}
	if s.since == nil {
		s.since = map[types.UID]time.Time{}
	}
	if _, ok := s.since[p]; !ok {
		s.since[p] = now
	}
	return s.since[p]
}

// ask lets the plugin of a Populator that is acceptable otherwise decide about
// the verdict.
func (c *Controller) ask(ctx context.Context, p *v1alpha1.Populator) verdict {
	info, err := c.plugins.Ask(ctx, p)
	return judgePlugin(p, info, err, c.now(), c.silences.note(p.UID, err == nil, c.now()))
}

// judgePlugin gives the verdict on a Populator by its plugin's answer. One that
// was accepted stays so for a while without answers.
func judgePlugin(p *v1alpha1.Populator, info *v1alpha1.PluginInfo, err error, now, since time.Time) verdict {
	if err == nil {
		return verdict{
			accepted: true, reason: v1alpha1.ReasonAccepted, plugin: info, again: askAgain,
			message: fmt.Sprintf("Claims with a data source of kind %s are filled by plugin %q", registration.KindOf(p), info.Name),
		}
	}
	if registration.Accepted(p) && p.Status.Plugin != nil && now.Sub(since) < silence {
		return verdict{again: askSooner}
	}
	return verdict{reason: v1alpha1.ReasonPluginUnavailable, message: upper(err.Error()), plugin: p.Status.Plugin, again: askSooner}
}

// upper makes a sentence of an error.
func upper(text string) string {
	if text == "" {
		return text
	}
	if c := text[0]; c >= 'a' && c <= 'z' {
		return string(c-'a'+'A') + text[1:]
	}
	return text
}
