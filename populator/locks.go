package populator

import (
	"context"
	"sync"
)

// idLocks lets one call at a time work on an id. A call waits no longer than its
// deadline.
type idLocks struct {
	mu   sync.Mutex
	held map[string]*idLock
}

type idLock struct {
	token chan struct{}
	users int
}

// lock waits for its turn and returns what ends it.
func (l *idLocks) lock(ctx context.Context, id string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*idLock{}
	}
	k := l.held[id]
	if k == nil {
		k = &idLock{token: make(chan struct{}, 1)}
		l.held[id] = k
	}
	k.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, id)
		}
	}
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// peaks remembers the highest progress of each fill.
type peaks struct {
	mu  sync.Mutex
	top map[string]int64
}

// raise returns the highest figure so far.
func (p *peaks) raise(id string, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.top == nil {
		p.top = map[string]int64{}
	}
	n = max(n, p.top[id])
	p.top[id] = n
	return n
}

func (p *peaks) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.top, id)
}
