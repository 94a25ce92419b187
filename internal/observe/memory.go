package observe

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// unknownProgress is how long something written is trusted over a cache that
// cannot say how far it has come.
const unknownProgress = 30 * time.Second

// Memory remembers, per claim, what this process wrote until the caches have
// caught up, and why the API server last refused a write. It is safe for
// concurrent use. It is lost at a restart, which costs no more than a look at
// the API server: every write has preconditions.
type Memory struct {
	now func() time.Time
	// progress returns the resourceVersion that the cache of an object's kind
	// has reached; empty when it cannot tell.
	progress func(client.Object) string

	mu     sync.Mutex
	claims map[types.UID]*claimMemory
}

type claimMemory struct {
	written map[slot]memo
	deleted map[types.UID]time.Time
	refused populate.Refusal
	// told is the refusal that people were told of last.
	told    refusalKind
	verdict verdict
	stale   int
}

// refusalKind is what makes two refusals one and the same to people.
type refusalKind struct{ reason, step string }

func kindOfRefusal(r populate.Refusal) refusalKind { return refusalKind{r.Reason, r.Step} }

// slot is a place that one object at a time can stand in.
type slot struct{ kind, namespace, name string }

type memo struct {
	object client.Object
	at     time.Time
}

// NewMemory returns an empty Memory.
func NewMemory(now func() time.Time, progress func(client.Object) string) *Memory {
	return &Memory{now: now, progress: progress, claims: map[types.UID]*claimMemory{}}
}

// Wrote remembers the newest state of an object that was written for a claim.
// The object must not be changed any more.
func (m *Memory) Wrote(claim types.UID, o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(claim).written[slotOf(o)] = memo{object: o, at: m.now()}
}

// Deleted remembers that an object was deleted, or is being deleted, for a
// claim.
func (m *Memory) Deleted(claim, object types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(claim).deleted[object] = m.now()
}

// Refused remembers why the API server refused the last write for a claim, and
// returns it as it is remembered: told already, if the same was before.
func (m *Memory) Refused(claim types.UID, r populate.Refusal) populate.Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(claim)
	r.Told = c.told == kindOfRefusal(r)
	c.refused = r
	return r
}

// Told remembers that people know of the refusal.
func (m *Memory) Told(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.claims[claim]; ok {
		c.refused.Told = true
		c.told = kindOfRefusal(c.refused)
	}
}

// Accepted forgets a refusal, and that it was told, since a write succeeded.
func (m *Memory) Accepted(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.claims[claim]; ok {
		c.refused, c.told = populate.Refusal{}, refusalKind{}
	}
}

// Retry forgets a refusal, since what was refused may be accepted now; that it
// was told is remembered, in case it is not. It says whether there was one.
func (m *Memory) Retry(claim types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.claims[claim]
	if !ok || c.refused == (populate.Refusal{}) {
		return false
	}
	c.refused = populate.Refusal{}
	return true
}

// Stale counts a step that was decided on outdated knowledge, and returns how
// long to wait before the next look: next to nothing at first, more each time,
// in case a cache is far behind.
func (m *Memory) Stale(claim types.UID) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(claim)
	c.stale = min(c.stale+1, 8)
	return 10 * time.Millisecond << c.stale
}

// Rested ends the counting of Stale: a reconcile came to its end.
func (m *Memory) Rested(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.claims[claim]; ok {
		c.stale = 0
	}
}

// RefusedClaims lists the claims whose last write was refused.
func (m *Memory) RefusedClaims() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid, c := range m.claims {
		if c.refused != (populate.Refusal{}) {
			out = append(out, uid)
		}
	}
	return out
}

// Len is how many claims something is remembered of.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.claims)
}

// Forget drops what is remembered of a claim that needs nothing more.
func (m *Memory) Forget(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, claim)
}

// of returns the memory of a claim; the caller holds the lock.
func (m *Memory) of(claim types.UID) *claimMemory {
	c, ok := m.claims[claim]
	if !ok {
		c = &claimMemory{written: map[slot]memo{}, deleted: map[types.UID]time.Time{}}
		m.claims[claim] = c
	}
	return c
}

// refusal returns the remembered refusal of a claim.
func (m *Memory) refusal(claim types.UID) populate.Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.claims[claim]; ok {
		return c.refused
	}
	return populate.Refusal{}
}

// verdict returns the remembered judgement of a claim's source.
func (m *Memory) verdict(claim types.UID) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.claims[claim]; ok {
		return c.verdict
	}
	return verdict{}
}

// judged remembers the judgement of a claim's source.
func (m *Memory) judged(claim types.UID, v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(claim).verdict = v
}

// latest returns the newer of what a cache shows in a place and what was
// written there. cached is nil if the cache shows nothing; empty tells kind
// and name then.
func (m *Memory) latest(claim types.UID, place, cached client.Object) client.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.claims[claim]
	if !ok {
		return cached
	}
	s := slotOf(place)
	if memo, ok := c.written[s]; ok {
		if m.overtaken(memo, cached) {
			delete(c.written, s)
		} else {
			cached = memo.object
		}
	}
	return c.marked(cached)
}

// merge returns the newer of what a cache lists and what was written, for
// objects of one kind; belongs says which of the written are of the list.
// The result is in the order of namespace and name.
func (m *Memory) merge(claim types.UID, cached []client.Object, belongs func(client.Object) bool) []client.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.claims[claim]
	if ok {
		seen := map[slot]client.Object{}
		for _, o := range cached {
			seen[slotOf(o)] = o
		}
		for s, memo := range c.written {
			if !belongs(memo.object) {
				continue
			}
			if m.overtaken(memo, seen[s]) {
				delete(c.written, s)
				continue
			}
			seen[s] = memo.object
		}
		cached = cached[:0:0]
		for _, o := range seen {
			cached = append(cached, c.marked(o))
		}
	}
	slices.SortFunc(cached, func(a, b client.Object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return cached
}

// overtaken says that a cache knows at least as much as the memo. seen is what
// the cache shows in its place, nil if nothing.
func (m *Memory) overtaken(memo memo, seen client.Object) bool {
	version := memo.object.GetResourceVersion()
	var reached string
	if seen != nil {
		reached = seen.GetResourceVersion()
	} else {
		reached = m.progress(memo.object)
	}
	order, err := resourceversion.CompareResourceVersion(reached, version)
	if err != nil {
		return m.now().Sub(memo.at) > unknownProgress
	}
	return order >= 0
}

// marked returns an object as being deleted if it is known to be.
func (c *claimMemory) marked(o client.Object) client.Object {
	if o == nil || o.GetDeletionTimestamp() != nil {
		return o
	}
	at, ok := c.deleted[o.GetUID()]
	if !ok {
		return o
	}
	return deleting(o, at)
}

// deleting returns a copy of an object as it is while it is being deleted.
func deleting(o client.Object, at time.Time) client.Object {
	out, _ := o.DeepCopyObject().(client.Object) // a deep copy has the type of its original
	out.SetDeletionTimestamp(&metav1.Time{Time: at})
	return out
}

func slotOf(o client.Object) slot {
	return slot{kind: fmt.Sprintf("%T", o), namespace: o.GetNamespace(), name: o.GetName()}
}
