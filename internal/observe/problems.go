package observe

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/internal/event"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// Problems knows the newest Warning event about each temporary: why a prime
// gets no volume, or a worker does not start. Of all other events it keeps
// nothing.
type Problems struct {
	events rest.Interface

	mu        sync.RWMutex
	byObject  map[types.UID]problem
	listeners []func(claim types.UID)
}

type problem struct {
	populate.Problem
	event types.UID
}

// NewProblems returns Problems that watch with a client.
func NewProblems(client corev1client.CoreV1Interface) *Problems {
	return &Problems{events: client.RESTClient(), byObject: map[types.UID]problem{}}
}

// Listen adds a function that is told the UID of a claim whose temporaries have
// a new problem. It must be called before Start and must not block.
func (p *Problems) Listen(l func(claim types.UID)) { p.listeners = append(p.listeners, l) }

// Of returns the newest problem of a temporary.
func (p *Problems) Of(uid types.UID) (populate.Problem, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	found, ok := p.byObject[uid]
	return found.Problem, ok
}

// Start watches until ctx ends.
func (p *Problems) Start(ctx context.Context) error {
	warnings := fields.OneTermEqualSelector("type", corev1.EventTypeWarning)
	lw := cache.NewListWatchFromClient(p.events, "events", metav1.NamespaceAll, warnings)
	cache.NewReflector(lw, &corev1.Event{}, (*problemStore)(p), 0).RunWithContext(ctx)
	return nil
}

// NeedLeaderElection says that replicas that do not lead watch too.
func (p *Problems) NeedLeaderElection() bool { return false }

// problemStore is the face that a Problems shows to its reflector.
type problemStore Problems

// Add takes a new event.
func (s *problemStore) Add(item any) error { return s.Update(item) }

// Update takes a new or repeated event.
func (s *problemStore) Update(item any) error {
	e, claim := ofTemporary(item)
	if e == nil {
		return nil
	}
	s.mu.Lock()
	known := s.note(e)
	s.mu.Unlock()
	if !known {
		for _, l := range s.listeners {
			l(claim)
		}
	}
	return nil
}

// Delete drops an event that the cluster has forgotten.
func (s *problemStore) Delete(item any) error {
	e, _ := ofTemporary(item)
	if e == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byObject[e.InvolvedObject.UID].event == e.UID {
		delete(s.byObject, e.InvolvedObject.UID)
	}
	return nil
}

// Replace takes the events of a new list.
func (s *problemStore) Replace(items []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byObject)
	for _, item := range items {
		if e, _ := ofTemporary(item); e != nil {
			s.note(e)
		}
	}
	return nil
}

// Resync does nothing: there is nobody to tell.
func (s *problemStore) Resync() error { return nil }

// note keeps an event if it is the newest about its object, and says whether
// the same was known already; the caller holds the lock.
func (s *problemStore) note(e *corev1.Event) (known bool) {
	old, ok := s.byObject[e.InvolvedObject.UID]
	at := event.Time(e)
	if ok && old.At.After(at) {
		return true
	}
	s.byObject[e.InvolvedObject.UID] = problem{
		Problem: populate.Problem{Reason: e.Reason, Message: e.Message, At: at},
		event:   e.UID,
	}
	return ok && old.Reason == e.Reason && old.Message == e.Message
}

// ofTemporary returns a Warning about a prime or worker, and the UID of the
// claim it belongs to; nil for all others. That Kubernetes finds a prime
// misbound after its volume was handed over is no problem of anybody's.
func ofTemporary(item any) (*corev1.Event, types.UID) {
	if gone, ok := item.(cache.DeletedFinalStateUnknown); ok {
		item = gone.Obj
	}
	e, ok := item.(*corev1.Event)
	if !ok || !strings.HasPrefix(e.InvolvedObject.Name, temporaryPrefix) || e.Reason == "ClaimMisbound" {
		return nil, ""
	}
	if e.InvolvedObject.Kind != "Pod" && e.InvolvedObject.Kind != "PersistentVolumeClaim" {
		return nil, ""
	}
	claim := ClaimUIDFromName(e.InvolvedObject.Name)
	if claim == "" || e.InvolvedObject.UID == "" {
		return nil, ""
	}
	return e, claim
}
