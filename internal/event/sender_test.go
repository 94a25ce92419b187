package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/utils/clock"
)

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, UID: types.UID("uid-" + name)}}
}

// server is an API server that knows events only. It answers writes with errors,
// in turn, and accepts those after the last.
type server struct {
	eventsv1client.EventInterface
	mu       sync.Mutex
	events   map[string]*eventsv1.Event
	requests int
	answers  []error
	down     bool
	hangs    int // requests that get no answer, before all others
}

func (s *server) Events(string) eventsv1client.EventInterface { return s }

func (s *server) answer(ctx context.Context) error {
	s.requests++
	switch {
	case s.requests <= s.hangs:
		<-ctx.Done()
		return ctx.Err()
	case s.down:
		return errors.New("connection refused")
	case s.requests <= len(s.answers):
		return s.answers[s.requests-1]
	}
	return nil
}

func (s *server) Create(ctx context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	if s.events == nil {
		s.events = map[string]*eventsv1.Event{}
	}
	s.events[e.Name] = e.DeepCopy()
	return e, nil
}

func (s *server) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.events[name], json.Unmarshal(data, s.events[name])
}

// told are the events that the server has, with how often each was told.
func (s *server) told() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, e := range s.events {
		count := 1
		if e.Series != nil {
			count = int(e.Series.Count)
		}
		out[e.Regarding.Name+": "+e.Note] += count
	}
	return out
}

func newSender(to *server) *Sender {
	return NewSender(to, clientgoscheme.Scheme, clock.RealClock{}, logr.Discard())
}

// TestStopSendsWhatWasTold stops a sender right after it was told many things:
// who told them has written down that they were told.
func TestStopSendsWhatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &server{}
		s := newSender(to)
		r := s.Recorder("sluice.dev/test")
		r.Eventf(claim("early"), nil, corev1.EventTypeNormal, "Populated", "Populate", "before the start")
		s.Start(t.Context())
		want := map[string]int{"early: before the start": 1}
		for i := range 500 {
			name := fmt.Sprintf("claim-%d", i)
			r.Eventf(claim(name), nil, corev1.EventTypeNormal, "Populated", "Populate", "%s is full", name)
			want[name+": "+name+" is full"] = 1
		}
		s.Stop(time.Minute)
		r.Eventf(claim("late"), nil, corev1.EventTypeNormal, "Populated", "Populate", "after the stop")
		if diff := cmp.Diff(want, to.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestStopOutlivesItsContext ends the context of the process first, as a signal
// does.
func TestStopOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &server{}
		s := newSender(to)
		ctx, cancel := context.WithCancel(t.Context())
		s.Start(ctx)
		cancel()
		s.Recorder("sluice.dev/test").Eventf(claim("data"), nil, corev1.EventTypeNormal, "Populated", "Populate", "full")
		s.Stop(time.Minute)
		if diff := cmp.Diff(map[string]int{"data: full": 1}, to.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestSend(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 1)
	group := eventsv1.Resource("events")
	cases := map[string]struct {
		reason   string
		answers  []error
		notes    []string
		apart    time.Duration
		want     map[string]int
		requests int
	}{
		"Once":        {reason: "An event is one request", notes: []string{"a"}, want: map[string]int{"data: a": 1}, requests: 1},
		"InOtherWord": {reason: "The newest event says where the claim is, whatever was said before under the same reason", notes: []string{"a", "b"}, want: map[string]int{"data: a": 1, "data: b": 1}, requests: 2},
		"Again":       {reason: "What is told word for word is counted", notes: []string{"a", "a", "a"}, want: map[string]int{"data: a": 3}, requests: 3},
		"Unreachable": {reason: "A server that is away comes back", answers: []error{errors.New("connection refused"), busy}, notes: []string{"a"}, want: map[string]int{"data: a": 1}, requests: 3},
		"Refused":     {reason: "What is refused is refused again", answers: []error{apierrors.NewForbidden(group, "", errors.New("no"))}, notes: []string{"a", "b"}, want: map[string]int{"data: b": 1}, requests: 2},
		"Lost":        {reason: "The answer to a write may be lost", answers: []error{apierrors.NewAlreadyExists(group, "")}, notes: []string{"a"}, want: map[string]int{}, requests: 1},
		"Vanished":    {reason: "An event that is no longer there is told anew", answers: []error{nil, apierrors.NewNotFound(group, "")}, notes: []string{"a", "a"}, want: map[string]int{"data: a": 2}, requests: 3},
		"MuchLater":   {reason: "After a while it is news", notes: []string{"a", "a"}, apart: time.Hour, want: map[string]int{"data: a": 2}, requests: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &server{answers: tc.answers}
				s := newSender(to)
				s.Start(t.Context())
				for _, note := range tc.notes {
					s.Recorder("sluice.dev/test").Eventf(claim("data"), nil, corev1.EventTypeNormal, "Populated", "Populate", "%s", note)
					<-time.After(tc.apart + time.Millisecond)
				}
				s.Stop(time.Minute)
				if diff := cmp.Diff(tc.want, to.told()); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", tc.reason, diff)
				}
				if to.requests != tc.requests {
					t.Errorf("%s: %d requests, want %d", tc.reason, to.requests, tc.requests)
				}
			})
		})
	}
}

// TestStopIsBounded has an API server that never answers.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(&server{down: true})
		s.Start(t.Context())
		s.Recorder("sluice.dev/test").Eventf(claim("data"), nil, corev1.EventTypeNormal, "Populated", "Populate", "full")
		before := time.Now()
		s.Stop(5 * time.Second)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("Stop took %v, want at most 5s", took)
		}
	})
}

// TestRequestsAreBounded has a request that is never answered: what comes after
// it waits no longer than that may take.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &server{hangs: 1}
		s := newSender(to)
		s.Start(t.Context())
		for _, note := range []string{"a", "b"} {
			s.Recorder("sluice.dev/test").Eventf(claim("data"), nil, corev1.EventTypeNormal, "Populated", "Populate", "%s", note)
		}
		s.Stop(2 * patience)
		if diff := cmp.Diff(map[string]int{"data: a": 1, "data: b": 1}, to.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}
