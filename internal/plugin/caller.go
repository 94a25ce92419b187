package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

const (
	// atOnce is how many calls to one plugin are under way at any time. More wait
	// for their turn.
	atOnce = 8

	// callTimeout bounds one call, with the reads that go before it.
	callTimeout = 10 * time.Second

	// firstAgain and lastAgain bound the delay before a call without an answer is
	// made again.
	firstAgain = time.Second
	lastAgain  = time.Minute
)

// Clients finds the plugin of a Populator.
type Clients interface {
	To(p *v1alpha1.Populator) (populatorv1.PopulatorClient, error)
}

// A Caller makes calls in the background and remembers the answers. It is safe
// for concurrent use.
type Caller struct {
	clients Clients
	reads   Reads
	now     func() time.Time
	log     logr.Logger

	mu     sync.Mutex
	ctx    context.Context // while the Caller runs
	claims map[types.UID]map[matter]*populate.Answer
	// failures counts the calls about one matter in a row that had no answer.
	failures map[types.UID]map[matter]int
	queues   map[string]*queue // by Populator
	listener func(populate.CallPlugin)
	running  sync.WaitGroup
}

// matter is what a call is about: starting and asking about a fill are one.
type matter struct {
	call populate.Call
	id   string
}

func matterOf(c populate.Call, id string) matter {
	if c == populate.CallStart {
		c = populate.CallStatus
	}
	return matter{c, id}
}

// queue holds what waits for one plugin.
type queue struct {
	waiting []populate.CallPlugin
	active  int
}

// NewCaller returns a Caller. Calls that it takes before Start are made then.
func NewCaller(clients Clients, reads Reads, now func() time.Time, log logr.Logger) *Caller {
	return &Caller{
		clients: clients, reads: reads, now: now, log: log,
		claims: map[types.UID]map[matter]*populate.Answer{}, failures: map[types.UID]map[matter]int{},
		queues: map[string]*queue{},
	}
}

// Listen has a function called with every call that was answered. It must
// return soon. There is one listener.
func (c *Caller) Listen(f func(populate.CallPlugin)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listener = f
}

// Start makes calls until ctx ends, and then waits for those under way.
func (c *Caller) Start(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for name := range c.queues {
		c.advance(name)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	for _, q := range c.queues {
		q.waiting = nil
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Call takes a call. It is made when its turn comes; one that is waiting or under
// way is not made a second time.
func (c *Caller) Call(call populate.CallPlugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := matterOf(call.Call, call.ID)
	answers := c.claims[call.ClaimUID]
	if answers == nil {
		answers = map[matter]*populate.Answer{}
		c.claims[call.ClaimUID] = answers
	}
	a := answers[m]
	if a == nil {
		a = &populate.Answer{ID: call.ID}
		answers[m] = a
	}
	if a.Pending {
		return
	}
	a.Call, a.Pending = call.Call, true
	q := c.queues[call.Populator]
	if q == nil {
		q = &queue{}
		c.queues[call.Populator] = q
	}
	q.waiting = append(q.waiting, call)
	waitingCalls.WithLabelValues(call.Populator).Set(float64(len(q.waiting)))
	c.advance(call.Populator)
}

// Answers are what is remembered for a claim.
func (c *Caller) Answers(claim types.UID) []populate.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := c.claims[claim]
	if len(answers) == 0 {
		return nil
	}
	out := make([]populate.Answer, 0, len(answers))
	for _, a := range answers {
		out = append(out, *a)
	}
	return out
}

// Forget drops what is remembered for a claim that needs nothing more.
func (c *Caller) Forget(claim types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, claim)
	delete(c.failures, claim)
}

// advance begins calls of one queue as far as there is room; the caller holds
// the lock.
func (c *Caller) advance(populator string) {
	q := c.queues[populator]
	for c.ctx != nil && c.ctx.Err() == nil && len(q.waiting) > 0 && q.active < atOnce {
		call := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.active++
		ctx := c.ctx
		c.running.Go(func() {
			a := c.make(ctx, call)
			c.answered(call, a)
		})
	}
	waitingCalls.WithLabelValues(populator).Set(float64(len(q.waiting)))
	if q.active == 0 && len(q.waiting) == 0 {
		delete(c.queues, populator)
	}
}

// answered takes an answer down and tells that it is there.
func (c *Caller) answered(call populate.CallPlugin, a populate.Answer) {
	c.mu.Lock()
	if q := c.queues[call.Populator]; q != nil {
		q.active--
		c.advance(call.Populator)
	}
	m := matterOf(call.Call, call.ID)
	// A claim that was forgotten meanwhile needs no answer.
	if answers := c.claims[call.ClaimUID]; answers[m] != nil {
		a.Call, a.ID, a.At = call.Call, call.ID, c.now()
		if a.Unavailable != "" {
			a.RetryAfter = c.delay(call.ClaimUID, m)
		} else {
			delete(c.failures[call.ClaimUID], m)
		}
		answers[m] = &a
	}
	listener := c.listener
	c.mu.Unlock()
	if listener != nil {
		listener(call)
	}
}

// delay is how long to wait after one more call without an answer; the caller
// holds the lock.
func (c *Caller) delay(claim types.UID, m matter) time.Duration {
	of := c.failures[claim]
	if of == nil {
		of = map[matter]int{}
		c.failures[claim] = of
	}
	n := of[m]
	of[m] = min(n+1, 16)
	return min(firstAgain<<n, lastAgain)
}

// make makes one call.
func (c *Caller) make(ctx context.Context, call populate.CallPlugin) populate.Answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p, err := c.reads.Populator(ctx, call.Populator)
	switch {
	case err != nil:
		return unavailable(err.Error())
	case p == nil || p.Spec.Plugin == nil:
		return unavailable(fmt.Sprintf("Populator %q, whose plugin is at work, is gone", call.Populator))
	}
	client, err := c.clients.To(p)
	if err != nil {
		return unavailable(err.Error())
	}
	r, refused, err := c.gather(ctx, p, call)
	switch {
	case err != nil:
		return unavailable(err.Error())
	case refused != nil:
		return *refused
	}
	begun := c.now()
	ctx, t := traced(ctx)
	a, err := r.send(ctx, client)
	observeCall(call.Populator, call.Call, err, c.now().Sub(begun))
	if err != nil {
		c.log.V(1).Info("call of plugin failed", "populator", call.Populator, "call", call.Call, "claim", call.Namespace+"/"+call.Name, "error", err.Error())
		a = failed(call.Call, err)
		a.Doubtful = a.Unavailable != "" && t.doubtful(err)
	}
	return a
}
