package population

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// recordsAtOnce is how many Populations are read from the API server at a time.
const recordsAtOnce = 500

// ledger is the account of slots of the leading manager, and wakes claims whose
// turn has come. Nothing of it is stored: a new leader learns who holds slots
// from the Populations, before it gives any.
type ledger struct {
	cache, live client.Reader
	now         func() time.Time
	// after calls a function after a time, as time.AfterFunc does.
	after func(time.Duration, func())

	mu   sync.Mutex
	book *slots.Book
	wake func([]observe.Key)
	// learnt says that the Populations were read.
	learnt bool
	// due is when the book is looked at next without anything happening.
	due time.Time
}

func newLedger(limits slots.Limits, cache, live client.Reader, now func() time.Time) *ledger {
	return &ledger{
		cache: cache, live: live, now: now, book: slots.New(limits), wake: func([]observe.Key) {},
		after: func(d time.Duration, do func()) { time.AfterFunc(d, do) }, //nolint:forbidigo // the timer itself; tests put theirs here
	}
}

// Listen names who is told of claims whose turn has come.
func (l *ledger) Listen(wake func([]observe.Key)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = wake
}

// Ask implements Slots.
func (l *ledger) Ask(ctx context.Context, o populate.Observed) (slots.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.learn(ctx); err != nil {
		return slots.Verdict{}, err
	}
	verdict, granted := l.book.Ask(populate.SlotOf(o, sourceName(o.Claim)), l.now())
	l.turn(granted)
	return verdict, nil
}

// Note implements Slots.
func (l *ledger) Note(o populate.Observed) {
	stage := populate.StageOf(o)
	waits := stage == populate.Idle && o.Slot != nil && !o.Slot.Granted
	if waits {
		return // it stays in line
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if stage == populate.Idle {
		l.turn(l.book.Leave(o.ClaimUID, l.now()))
		return
	}
	l.turn(l.book.Hold(populate.SlotOf(o, sourceName(o.Claim)), stage == populate.Moving, l.now()))
}

// learn reads who holds slots. It asks the API server, not a cache: what the
// manager that led before wrote last must be known.
func (l *ledger) learn(ctx context.Context) error {
	if l.learnt {
		return nil
	}
	next := ""
	for {
		var list v1alpha1.PopulationList
		if err := l.live.List(ctx, &list, client.Limit(recordsAtOnce), client.Continue(next)); err != nil {
			return fmt.Errorf("list Populations to learn what is being filled: %w", err)
		}
		for i := range list.Items {
			l.learnOne(ctx, &list.Items[i])
		}
		if next = list.Continue; next == "" {
			l.learnt = true
			return nil
		}
	}
}

// learnOne takes down a claim that was begun. Its own reconcile, which every
// claim gets after a start, corrects what is not known here.
func (l *ledger) learnOne(ctx context.Context, p *v1alpha1.Population) {
	o := populate.Observed{Namespace: p.Namespace, Name: p.Name, ClaimUID: p.Spec.ClaimUID, Population: p}
	var claim corev1.PersistentVolumeClaim
	if err := l.cache.Get(ctx, client.ObjectKeyFromObject(p), &claim); err != nil || claim.UID != p.Spec.ClaimUID {
		return // whatever is left of it is being cleaned up
	}
	o.Claim = &claim
	if populate.StageOf(o) == populate.Idle {
		return
	}
	c := populate.SlotOf(o, sourceName(&claim))
	c.Populator, c.Node = p.Status.Populator, p.Status.NodeName
	l.turn(l.book.Hold(c, false, l.now()))
}

// turn wakes claims whose turn has come, and sees to it that the book is looked
// at when claims that stand still make room for others. The caller holds the
// lock.
func (l *ledger) turn(granted []slots.Claim) {
	if len(granted) > 0 {
		keys := make([]observe.Key, 0, len(granted))
		for _, c := range granted {
			keys = append(keys, observe.Key{Namespace: c.Namespace, Name: c.Name, UID: c.UID})
		}
		l.wake(keys)
	}
	now := l.now()
	due := l.book.Due(now)
	if due.IsZero() || (l.due.After(now) && !due.Before(l.due)) {
		return
	}
	l.due = due
	l.after(due.Sub(now), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.due = time.Time{}
		l.turn(l.book.Fill(l.now()))
	})
}

// sourceName names the source of a claim.
func sourceName(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil {
		return ""
	}
	ref, ok := observe.SourceOf(claim)
	if !ok {
		return ""
	}
	return ref.Kind.Kind + "/" + ref.Namespace + "/" + ref.Name
}

var _ Slots = (*ledger)(nil)
