package population

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

func TestSourceOfANamespaceThatGrantsNothing(t *testing.T) {
	s := shared(t)
	theirs := namespace(t)
	s.populator(t, runs(0))
	s.sourceIn(t, theirs)
	claim := s.claim("claim", simulate.ClassImmediate)
	claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: theirs}
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonNotGranted, 5*time.Second)
	if s := p.Status.Source; s != nil && s.UID != "" {
		t.Errorf("the record tells of the source, which its namespace does not grant: %+v", s)
	}
}
