// Package slots decides which claims may be filled at the same time, and whose
// turn it is when there are more. It is pure: whoever keeps a Book tells it what
// happens, and when.
//
// A claim that is being filled holds a slot under each limit that concerns it.
// A claim that waits is given its slots all at once or not at all. Among claims
// that wait, the namespace that holds fewest slots comes first, then the one
// that was given none for longest, and in a namespace the oldest claim; one that
// waits for a limit of its own, such as its node's, lets the others pass. So a
// thousand claims of one namespace do not keep a single claim of another
// waiting, and each limit's free slots go to the claim that is longest in line
// for it.
//
// Besides, only so many claims may be in motion: being started or handed over,
// when it is the control plane that works, and not their workers. A claim that
// stays in motion for longer than Settling waits for something else and no
// longer counts. What is begun passes through quickly that way, instead of
// everything being begun before anything ends.
package slots

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Settling is how long a claim counts as being in motion at most.
const Settling = 3 * time.Second

// Limits are how many claims may be filled at the same time; 0 is no limit.
type Limits struct {
	// Total is for all claims.
	Total int
	// Namespace, Class, Node and Source are for the claims of each namespace,
	// storage class, node and source object.
	Namespace, Class, Node, Source int
	// Moving is how many claims may be in motion.
	Moving int
}

// Claim is a claim, as far as limits concern it. A limit whose field is empty
// does not.
type Claim struct {
	UID             types.UID
	Namespace, Name string
	Created         time.Time

	Class, Node, Source string
	// Populator fills the claim, and at most PopulatorLimit at the same time; 0
	// is no limit.
	Populator      string
	PopulatorLimit int
}

// Kind is the kind of a limit.
type Kind string

// The kinds of limits, in the order in which they are told.
const (
	OfAll       Kind = ""
	OfNamespace Kind = "namespace"
	OfClass     Kind = "storage class"
	OfNode      Kind = "node"
	OfSource    Kind = "source"
	OfPopulator Kind = "populator"
	OfMotion    Kind = "motion"
)

// Verdict is the answer to a claim that asks for its slots.
type Verdict struct {
	Granted bool
	// Kind, Name and Limit are the first limit that is in the way.
	Kind  Kind
	Name  string
	Limit int
	// Ahead is how many older claims wait for that limit.
	Ahead int
}

// place is what a limit is for.
type place struct {
	kind Kind
	name string
}

type holder struct {
	claim  Claim
	moving bool
	// since is when the claim began to be in motion.
	since time.Time
}

// Book knows who holds slots and who waits.
type Book struct {
	limits  Limits
	held    map[types.UID]*holder
	counts  map[place]int
	waiting map[string][]Claim // by namespace, oldest first
	queued  map[types.UID]string
	// turns say when each namespace was last given a slot.
	turns map[string]uint64
	turn  uint64
}

// New returns an empty Book.
func New(l Limits) *Book {
	return &Book{
		limits: l, held: map[types.UID]*holder{}, counts: map[place]int{},
		waiting: map[string][]Claim{}, queued: map[types.UID]string{}, turns: map[string]uint64{},
	}
}

// Ask asks for a claim's slots. A claim that has none yet waits in line from
// then on. granted are others that were given theirs.
func (b *Book) Ask(c Claim, now time.Time) (v Verdict, granted []Claim) {
	if _, ok := b.held[c.UID]; ok {
		return Verdict{Granted: true}, nil
	}
	b.queue(c)
	granted = slices.DeleteFunc(b.Fill(now), func(g Claim) bool { return g.UID == c.UID })
	if _, ok := b.held[c.UID]; ok {
		return Verdict{Granted: true}, granted
	}
	return b.refusal(c, now), granted
}

// Hold says that a claim holds its slots, whatever the limits: it was begun
// before they were, or by another manager. Moving says whether it is in motion.
func (b *Book) Hold(c Claim, moving bool, now time.Time) (granted []Claim) {
	b.unqueue(c.UID)
	h := b.held[c.UID]
	if h == nil {
		h = &holder{}
	} else {
		b.count(h.claim, -1)
	}
	b.count(c, 1)
	if moving && !h.moving {
		h.since = now
	}
	h.claim, h.moving = c, moving
	b.held[c.UID] = h
	return b.Fill(now)
}

// Leave says that a claim holds no slots and waits for none.
func (b *Book) Leave(uid types.UID, now time.Time) (granted []Claim) {
	b.unqueue(uid)
	h, ok := b.held[uid]
	if !ok {
		return nil
	}
	b.count(h.claim, -1)
	delete(b.held, uid)
	b.forget(h.claim.Namespace)
	return b.Fill(now)
}

// Fill gives free slots to those whose turn it is, and returns them.
func (b *Book) Fill(now time.Time) (granted []Claim) {
	for len(b.queued) > 0 && !b.full(now) {
		c, ok := b.next()
		if !ok {
			break
		}
		b.unqueue(c.UID)
		b.count(c, 1)
		b.held[c.UID] = &holder{claim: c, moving: true, since: now}
		b.turn++
		b.turns[c.Namespace] = b.turn
		granted = append(granted, c)
	}
	return granted
}

// Due is when slots may become free by the mere passing of time; zero if nobody
// waits for that.
func (b *Book) Due(now time.Time) time.Time {
	var due time.Time
	if len(b.queued) == 0 || b.limits.Moving == 0 {
		return due
	}
	for _, h := range b.held {
		if at := h.since.Add(Settling); h.moving && at.After(now) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// Holding and Waiting are how many claims hold slots and how many wait.
func (b *Book) Holding() int { return len(b.held) }

// Waiting is how many claims wait.
func (b *Book) Waiting() int { return len(b.queued) }

// full says that nobody at all can be given a slot.
func (b *Book) full(now time.Time) bool {
	return (b.limits.Total > 0 && len(b.held) >= b.limits.Total) || b.crowded(now)
}

// crowded says that as many claims are in motion as may be.
func (b *Book) crowded(now time.Time) bool {
	if b.limits.Moving == 0 {
		return false
	}
	moving := 0
	for _, h := range b.held {
		if h.moving && now.Sub(h.since) < Settling {
			moving++
		}
	}
	return moving >= b.limits.Moving
}

// next is the claim whose turn it is among those that can be given their slots.
func (b *Book) next() (Claim, bool) {
	namespaces := slices.SortedFunc(maps.Keys(b.waiting), func(x, y string) int {
		return cmp.Or(
			cmp.Compare(b.counts[place{OfNamespace, x}], b.counts[place{OfNamespace, y}]),
			cmp.Compare(b.turns[x], b.turns[y]),
			cmp.Compare(x, y),
		)
	})
	for _, ns := range namespaces {
		for _, c := range b.waiting[ns] {
			if _, _, blocked := b.blocked(c); !blocked {
				return c, true
			}
		}
	}
	return Claim{}, false
}

// blocked returns the first limit that has no room for a claim, the one on
// motion aside.
func (b *Book) blocked(c Claim) (p place, limit int, is bool) {
	if b.limits.Total > 0 && len(b.held) >= b.limits.Total {
		return place{}, b.limits.Total, true
	}
	for _, p := range places(c) {
		if limit := b.limit(p, c); limit > 0 && b.counts[p] >= limit {
			return p, limit, true
		}
	}
	return place{}, 0, false
}

// refusal is the verdict on a claim that waits.
func (b *Book) refusal(c Claim, now time.Time) Verdict {
	p, limit, is := b.blocked(c)
	if !is && b.crowded(now) {
		p, limit = place{kind: OfMotion}, b.limits.Moving
	}
	v := Verdict{Kind: p.kind, Name: p.name, Limit: limit}
	for _, list := range b.waiting {
		for _, other := range list {
			if byAge(other, c) < 0 && p.concerns(other) {
				v.Ahead++
			}
		}
	}
	return v
}

// places are what limits are counted by for a claim.
func places(c Claim) []place {
	all := []place{
		{OfNamespace, c.Namespace}, {OfClass, c.Class}, {OfNode, c.Node}, {OfSource, c.Source}, {OfPopulator, c.Populator},
	}
	return slices.DeleteFunc(all, func(p place) bool { return p.name == "" })
}

// concerns says that a claim is counted at a place.
func (p place) concerns(c Claim) bool {
	switch p.kind {
	case OfNamespace:
		return c.Namespace == p.name
	case OfClass:
		return c.Class == p.name
	case OfNode:
		return c.Node == p.name
	case OfSource:
		return c.Source == p.name
	case OfPopulator:
		return c.Populator == p.name
	case OfAll, OfMotion:
	}
	return true
}

func (b *Book) limit(p place, c Claim) int {
	switch p.kind {
	case OfNamespace:
		return b.limits.Namespace
	case OfClass:
		return b.limits.Class
	case OfNode:
		return b.limits.Node
	case OfSource:
		return b.limits.Source
	case OfPopulator:
		return c.PopulatorLimit
	case OfAll, OfMotion:
	}
	return 0
}

func (b *Book) count(c Claim, by int) {
	for _, p := range places(c) {
		if b.counts[p] += by; b.counts[p] == 0 {
			delete(b.counts, p)
		}
	}
}

// queue puts a claim in line, or changes what is known of one that is.
func (b *Book) queue(c Claim) {
	b.unqueue(c.UID)
	list := b.waiting[c.Namespace]
	at, _ := slices.BinarySearchFunc(list, c, byAge)
	b.waiting[c.Namespace] = slices.Insert(list, at, c)
	b.queued[c.UID] = c.Namespace
}

func (b *Book) unqueue(uid types.UID) {
	ns, ok := b.queued[uid]
	if !ok {
		return
	}
	delete(b.queued, uid)
	b.waiting[ns] = slices.DeleteFunc(b.waiting[ns], func(c Claim) bool { return c.UID == uid })
	if len(b.waiting[ns]) > 0 {
		return
	}
	delete(b.waiting, ns)
	b.forget(ns)
}

// forget drops the turn of a namespace of which nothing is left to be fair to.
func (b *Book) forget(namespace string) {
	if len(b.waiting[namespace]) == 0 && b.counts[place{OfNamespace, namespace}] == 0 {
		delete(b.turns, namespace)
	}
}

func byAge(x, y Claim) int {
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.UID, y.UID))
}
