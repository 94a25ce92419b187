package population

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestOrphansAreSweptAtStart(t *testing.T) {
	p := startManager(t)
	ns := namespace(t)
	populator(t, runs(time.Hour))
	hello(t, ns)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 15*time.Second, "worker runs", workerRuns(ns))
	p.kill(t)
	// Garbage collection takes the owners away and leaves the rest running.
	if err := kube.Delete(t.Context(), claim, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	gone(t, claim)

	startManager(t, "--lease-duration=3s")
	clean(t, ns, 30*time.Second)
	eventually(t, 15*time.Second, "volumes are gone", noVolumes(ns))
}

func TestSourceOfANamespaceThatGrantsNothing(t *testing.T) {
	startManager(t)
	ns, theirs := namespace(t), namespace(t)
	populator(t, runs(0))
	hello(t, theirs)
	claim := newClaim(ns, "claim", simulate.ClassImmediate)
	claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: theirs}
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonNotGranted, 5*time.Second)
	if s := p.Status.Source; s != nil && s.UID != "" {
		t.Errorf("the record tells of the source, which its namespace does not grant: %+v", s)
	}
}
