package population

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestManagerKilledInTheMiddle(t *testing.T) {
	p := startManager(t, "--lease-duration=3s")
	s := alone(t)
	s.populator(t, runs(3*time.Second))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(s.namespace))
	p.kill(t)

	startManager(t, "--lease-duration=3s")
	bound(t, claim, 40*time.Second)
	if got := succeeded(t, claim, 10*time.Second); got.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want the running one to be taken over", got.Spec.Attempt)
	}
	clean(t, s.namespace, 10*time.Second)
}

func TestSecondReplicaTakesOver(t *testing.T) {
	leader := startManager(t, "--lease-duration=6s")
	startManager(t, "--lease-duration=6s")
	s := alone(t)
	s.populator(t, runs(time.Second))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(s.namespace))
	leader.kill(t)
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 10*time.Second)
	if p := succeeded(t, claim, 5*time.Second); p.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want the running one to be taken over", p.Spec.Attempt)
	}
}

func TestOrphansAreSweptAtStart(t *testing.T) {
	p := startManager(t, "--lease-duration=3s")
	s := alone(t)
	s.populator(t, runs(time.Hour))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(s.namespace))
	p.kill(t)
	// Garbage collection takes the owners away and leaves the rest running.
	if err := kube.Delete(t.Context(), claim, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	gone(t, claim)

	startManager(t, "--lease-duration=3s")
	clean(t, s.namespace, 30*time.Second)
	eventually(t, 15*time.Second, "volumes are gone", noVolumes(s.namespace))
}

// TestLeaseIsHandedOver stops the leader as Kubernetes does: the other replica
// does not wait for the lease to run out.
func TestLeaseIsHandedOver(t *testing.T) {
	const lease = 30 * time.Second
	leader := startManager(t, "--lease-duration="+lease.String())
	s := alone(t)
	s.populator(t, runs(0))
	s.source(t)
	startManager(t, "--lease-duration="+lease.String())
	leader.stop(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	// Followers look every sixth of the lease.
	bound(t, claim, lease/2)
	clean(t, s.namespace, 5*time.Second)
}

// TestStoppedManagerSendsItsEvents stops a manager as Kubernetes does, while the
// event of a population that it has recorded as over is on its way: nobody would
// tell it again.
func TestStoppedManagerSendsItsEvents(t *testing.T) {
	g := newGate(t)
	p := startManagerBy(t, g.kubeconfig, "--leader-elect=false")
	s := alone(t)
	s.populator(t, runs(0))
	s.source(t)
	sent, pass := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g.set(func(string, int) verdict {
		return func(g *gate, w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				once.Do(func() { close(sent) })
				select {
				case <-pass:
				case <-r.Context().Done():
				}
			}
			g.next.ServeHTTP(w, r)
		}
	})
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	succeeded(t, claim, 20*time.Second)
	select {
	case <-sent:
	case <-time.After(soon):
		t.Fatal("no event is told")
	}
	stopping := make(chan struct{})
	go func() {
		defer close(stopping)
		p.stop(t)
	}()
	// All else of the manager has ended when its probes have.
	eventually(t, soon, "the manager has stopped all but its events", func(ctx context.Context) error {
		if p.ready(ctx) == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	close(pass)
	<-stopping
	if got := events(t, claim); !slices.Contains(got, "Normal "+v1alpha1.ReasonPopulated) {
		t.Errorf("events on the claim are %q, want that it is filled", got)
	}
}

// TestPausedLeader stops a leader in its tracks, as a frozen machine does, until
// another has taken over and finished: waking up, it undoes nothing.
func TestPausedLeader(t *testing.T) {
	old := startManager(t, "--lease-duration=3s")
	s := alone(t)
	s.populator(t, runs(2*time.Second))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	worker := s.worker(t)
	if err := old.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	startManager(t, "--lease-duration=3s")
	volume := bound(t, claim, 30*time.Second)
	clean(t, s.namespace, 10*time.Second)
	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-old.ended: // it finds its lease lost and ends, to be started again
	case <-time.After(20 * time.Second):
		t.Error("the old leader goes on")
	}
	if again := bound(t, claim, soon); again.UID != volume.UID {
		t.Errorf("the claim is bound to volume %q, want %q", again.Name, volume.Name)
	}
	if p := succeeded(t, claim, soon); p.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want worker %q to be taken over", p.Spec.Attempt, worker.Name)
	}
	if got := warningsOn(t, claim); len(got) > 0 {
		t.Errorf("the claim has events %q, want no Warning", got)
	}
}
