package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
)

const (
	// lanes are how many events are sent at the same time. Those about one object
	// take one lane, and so keep their order.
	lanes = 16

	// waiting is how many events may wait in a lane. What comes on top is lost:
	// told is better late than never, but never at the price of the memory.
	waiting = 1024

	// patience is how long one request may take: nobody else in its lane is held
	// up for longer by an answer that does not come.
	patience = 10 * time.Second

	// sameFor is how long an event that is told again, word for word, is counted
	// on the first one instead of being another.
	sameFor = 6 * time.Minute
)

// retries are how an event is tried again that the API server could not take.
var retries = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}

// A Sender sends events in the background. It is there before everything that
// tells any and is stopped after it, so that what was told when a process is
// asked to end is still sent: who tells has written down that it was told, and
// nobody would tell it again.
type Sender struct {
	client eventsv1client.EventsGetter
	scheme *runtime.Scheme
	clock  clock.Clock
	log    logr.Logger
	host   string

	mu      sync.RWMutex // held for reading by whoever puts an event into a lane
	stopped bool
	lanes   [lanes]chan *eventsv1.Event

	last    atomic.Int64
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewSender returns a Sender of events about objects of a scheme. Events that
// are told before Start wait for it.
func NewSender(client eventsv1client.EventsGetter, scheme *runtime.Scheme, c clock.Clock, log logr.Logger) *Sender {
	s := &Sender{client: client, scheme: scheme, clock: c, log: log, cancel: func() {}}
	s.host, _ = os.Hostname() // without, the instance is less telling
	for i := range s.lanes {
		s.lanes[i] = make(chan *eventsv1.Event, waiting)
	}
	return s
}

// Start begins to send. It is called once; that ctx ends does not stop it, Stop
// does.
func (s *Sender) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, lane := range s.lanes {
		s.running.Go(func() { s.send(ctx, lane) })
	}
}

// Stop sends what was told so far and returns when that is done or the time is
// over. What is told later is lost.
func (s *Sender) Stop(within time.Duration) {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		for _, lane := range s.lanes {
			close(lane)
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	timer := s.clock.NewTimer(within)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
		left := 0
		for _, lane := range s.lanes {
			left += len(lane)
		}
		s.log.Info("events were not sent in time", "within", within.String(), "waiting", left)
	}
	s.cancel()
}

// Recorder returns a recorder of events that a controller reports.
func (s *Sender) Recorder(controller string) events.EventRecorder {
	return &recorder{sender: s, controller: controller, instance: controller + "-" + s.host}
}

// recorder makes events and hands them to its Sender.
type recorder struct {
	sender               *Sender
	controller, instance string
}

// maxInstance is the longest name of a reporting instance that the API takes.
const maxInstance = 128

// Eventf tells an event about an object. It never waits.
func (r *recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	s := r.sender
	about, err := reference.GetReference(s.scheme, regarding)
	if err != nil {
		s.log.Error(err, "event about an object of no known kind", "reason", reason)
		return
	}
	now := s.clock.Now()
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: about.Namespace, Name: util.GenerateEventName(about.Name, s.moment(now)),
		},
		EventTime: metav1.NewMicroTime(now), ReportingController: r.controller, ReportingInstance: r.instance[:min(len(r.instance), maxInstance)],
		Type: eventType, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...), Regarding: *about,
	}
	if e.Namespace == "" {
		e.Namespace = metav1.NamespaceDefault
	}
	if related != nil {
		if e.Related, err = reference.GetReference(s.scheme, related); err != nil {
			s.log.Error(err, "event with an object of no known kind", "reason", reason)
		}
	}
	s.put(e)
}

// moment is when an event is told, for its name: no two events have the same,
// however coarse the clock.
func (s *Sender) moment(now time.Time) int64 {
	for {
		last := s.last.Load()
		next := max(now.UnixNano(), last+1)
		if s.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// put puts an event into its lane.
func (s *Sender) put(e *eventsv1.Event) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.Regarding.UID)) // a hash takes everything
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.stopped {
		select {
		case s.lanes[h.Sum32()%lanes] <- e:
			s.log.V(1).Info("event told", about(e)...)
			return
		default:
		}
	}
	s.log.Info("event lost", about(e)...)
}

// about names an event in the log.
func about(e *eventsv1.Event) []any {
	return []any{"kind", e.Regarding.Kind, "namespace", e.Regarding.Namespace, "name", e.Regarding.Name, "type", e.Type, "reason", e.Reason, "note", e.Note}
}

// likeness is what two events have in common that say the same.
type likeness struct {
	about                                     types.UID
	name, controller, kind, reason, act, note string
}

func likenessOf(e *eventsv1.Event) likeness {
	return likeness{
		about: e.Regarding.UID, name: e.Regarding.Name, controller: e.ReportingController,
		kind: e.Type, reason: e.Reason, act: e.Action, note: e.Note,
	}
}

// send sends the events of one lane until that is closed and empty.
func (s *Sender) send(ctx context.Context, lane <-chan *eventsv1.Event) {
	sent := map[likeness]*eventsv1.Event{}
	var cleared time.Time
	for e := range lane {
		now := e.EventTime.Time
		if now.Sub(cleared) > time.Minute {
			for k, old := range sent {
				if now.Sub(lastOf(old)) > sameFor {
					delete(sent, k)
				}
			}
			cleared = now
		}
		key := likenessOf(e)
		if first := sent[key]; first != nil && now.Sub(lastOf(first)) <= sameFor && s.again(ctx, first, now) {
			continue
		}
		if s.create(ctx, e) {
			sent[key] = e
		}
	}
}

// lastOf is when an event was told last.
func lastOf(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

// create creates an event, and says whether there is one now.
func (s *Sender) create(ctx context.Context, e *eventsv1.Event) bool {
	return s.try(ctx, e, func(ctx context.Context) error {
		_, err := s.client.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // an answer was lost
		}
		return err
	})
}

// again counts an event on the one that was told first, and says whether that is
// still there.
func (s *Sender) again(ctx context.Context, first *eventsv1.Event, now time.Time) bool {
	series := &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(now)}
	if first.Series != nil {
		series.Count = first.Series.Count + 1
	}
	patch, err := json.Marshal(map[string]any{"series": series})
	if err != nil {
		s.log.Error(err, "write down event that is told again")
		return false
	}
	ok := s.try(ctx, first, func(ctx context.Context) error {
		_, err := s.client.Events(first.Namespace).Patch(ctx, first.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if ok {
		first.Series = series
	}
	return ok
}

// try makes a request until it is answered, a number of times.
func (s *Sender) try(ctx context.Context, e *eventsv1.Event, request func(context.Context) error) bool {
	backoff := retries
	for {
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := request(bounded)
		cancel()
		if err == nil {
			return true
		}
		if refused(err) || backoff.Steps == 0 || ctx.Err() != nil {
			if !apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				s.log.Error(err, "send event", about(e)...)
			}
			return false
		}
		timer := s.clock.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// refused says of an error that the API server answers, and would answer the
// same again.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) &&
		!apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsConflict(err)
}
