package progress

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

const (
	// idle is how long the sampler waits before it looks for workers again
	// where there are none to read.
	idle = time.Second

	// readTimeout bounds one read, and atOnce how many are under way: nodes that
	// do not answer hold up no others.
	readTimeout = 3 * time.Second
	atOnce      = 20
)

// Logs reads the logs of workers.
type Logs interface {
	// LastLine returns the last line of a worker's log, or the first 4 KiB of
	// it.
	LastLine(ctx context.Context, namespace, pod string) ([]byte, error)
}

// Config is what a Sampler is made of.
type Config struct {
	// Workers lists the Pods of workers, from a cache.
	Workers client.Reader
	// Logs reads their logs.
	Logs Logs
	// Clock is the clock.
	Clock clock.Clock
	// Log is told when logs cannot be read, once, and when they can again.
	Log logr.Logger
	// Count, if set, is told of every read and its error.
	Count func(error)
}

// Sampler keeps the newest reading of every running worker. It implements
// manager.Runnable, for the leader.
type Sampler struct {
	Config
	rounds    Rounds
	listeners []func(claim types.UID)

	mu       sync.Mutex
	readings map[types.UID]populate.Reading
	// failing are the workers whose logs could not be read the last time.
	failing map[types.UID]bool
}

// New returns a Sampler.
func New(c Config) *Sampler {
	return &Sampler{Config: c, readings: map[types.UID]populate.Reading{}, failing: map[types.UID]bool{}}
}

// Listen adds a function that is told the UID of a claim whose worker has news.
// It must be called before Start and must not block.
func (s *Sampler) Listen(l func(claim types.UID)) { s.listeners = append(s.listeners, l) }

// Of returns the newest reading of a worker.
func (s *Sampler) Of(pod types.UID) (populate.Reading, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.readings[pod]
	return r, ok
}

// NeedLeaderElection says that one replica reads, the one that writes.
func (s *Sampler) NeedLeaderElection() bool { return true }

// Start reads logs until ctx ends.
func (s *Sampler) Start(ctx context.Context) error {
	var reads sync.WaitGroup
	defer reads.Wait()
	slots := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		next, wait, ok := s.next(ctx)
		if !ok {
			timer := s.Clock.NewTimer(wait)
			select {
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			reads.Go(func() {
				defer func() { <-slots }()
				s.read(ctx, next)
			})
		case <-ctx.Done():
		}
	}
	return nil
}

// next is the worker to read now, or how long to wait for one.
func (s *Sampler) next(ctx context.Context) (Worker, time.Duration, bool) {
	running, err := s.running(ctx)
	if err != nil {
		s.Log.V(1).Info("list workers", "error", err.Error())
		return Worker{}, idle, false
	}
	s.forget(running)
	w, wait, ok := s.rounds.Next(s.Clock.Now(), running)
	if wait == 0 || wait > idle {
		wait = idle // there may be others by then
	}
	return w, wait, ok
}

// running lists the workers whose container runs.
func (s *Sampler) running(ctx context.Context) ([]Worker, error) {
	var pods corev1.PodList
	err := s.Workers.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleWorker}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	var all []Worker
	for i := range pods.Items {
		p := &pods.Items[i]
		for j := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[j]
			if c.Name != v1alpha1.WorkerContainer || c.State.Running == nil || p.DeletionTimestamp != nil {
				continue
			}
			all = append(all, Worker{
				UID: p.UID, Claim: types.UID(p.Labels[v1alpha1.LabelClaimUID]),
				Namespace: p.Namespace, Name: p.Name, Started: c.State.Running.StartedAt.Time,
			})
		}
	}
	return all, nil
}

// forget drops the readings of workers that no longer run.
func (s *Sampler) forget(running []Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readings)+len(s.failing) == 0 {
		return
	}
	runs := make(map[types.UID]bool, len(running))
	for _, w := range running {
		runs[w.UID] = true
	}
	for uid := range s.readings {
		if !runs[uid] {
			delete(s.readings, uid)
		}
	}
	for uid := range s.failing {
		if !runs[uid] {
			delete(s.failing, uid)
		}
	}
}

// read reads one log and notes what it says.
func (s *Sampler) read(ctx context.Context, w Worker) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	line, err := s.Logs.LastLine(ctx, w.Namespace, w.Name)
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	if s.Count != nil {
		s.Count(err)
	}
	s.noteOutcome(w, err)
	if err != nil {
		return
	}
	if p, ok := worker.ParseProgress(bytes.TrimSpace(line)); ok && s.note(w, p) {
		for _, l := range s.listeners {
			l(w.Claim)
		}
	}
}

// note notes what a worker said, and says whether that is news.
func (s *Sampler) note(w Worker, p worker.Progress) bool {
	now := s.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.readings[w.UID]
	same := known && last.Progress.Bytes == p.Bytes && last.Progress.Files == p.Files && last.Progress.TotalBytes == p.TotalBytes
	if same {
		// It prints nothing while nothing moves, the old rate included.
		if last.Progress.BytesPerSecond == 0 || now.Sub(last.At) < Stalled {
			return false
		}
		p.BytesPerSecond = 0
	}
	s.readings[w.UID] = populate.Reading{Worker: w.UID, Progress: p, At: now}
	return true
}

// noteOutcome logs when logs begin to fail, and when all can be read again: a
// node that does not answer is one line, not one a second.
func (s *Sampler) noteOutcome(w Worker, err error) {
	s.mu.Lock()
	before := len(s.failing)
	if err != nil {
		s.failing[w.UID] = true
	} else {
		delete(s.failing, w.UID)
	}
	after := len(s.failing)
	s.mu.Unlock()
	switch {
	case err != nil && before == 0:
		s.Log.Info("log of a worker cannot be read, so its progress is not known", "worker", w.Namespace+"/"+w.Name, "error", err.Error())
	case err != nil:
		s.Log.V(1).Info("log of a worker cannot be read", "worker", w.Namespace+"/"+w.Name, "error", err.Error())
	case before > 0 && after == 0:
		s.Log.Info("logs of workers can be read again")
	}
}
