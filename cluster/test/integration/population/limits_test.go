package population

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// restricted makes Pod Security as strict as it goes in a namespace.
func restricted(t *testing.T, namespace string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := kube.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch); err != nil {
		t.Fatal(err)
	}
}

func TestRestrictedNamespaceAdmitsTheDefaultWorker(t *testing.T) {
	s := shared(t)
	restricted(t, s.namespace)
	s.populator(t, runs(0))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
}

// TestRestrictedNamespaceRefusesADevice shows what a user is told where the
// worker of a block volume would have to be root.
func TestRestrictedNamespaceRefusesADevice(t *testing.T) {
	s := shared(t)
	restricted(t, s.namespace)
	s.populator(t, runs(0))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonPodSecurityRefused, soon)
	// Less strict, the namespace admits it, and nobody has to touch the claim.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`))
	if err := kube.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, patch); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
}

// quota limits a namespace, and is in force when it returns. Kubernetes hears of
// kinds that came lately every half minute, and looks at a quota that names one
// it did not know only after minutes: that quota is made anew.
func (s *scene) quota(t *testing.T, hard corev1.ResourceList) *corev1.ResourceQuota {
	t.Helper()
	const patience = 5 * time.Second
	var q *corev1.ResourceQuota
	var made time.Time
	eventually(t, 90*time.Second, "quota is in force", func(ctx context.Context) error {
		if q != nil && time.Since(made) > patience {
			if err := kube.Delete(ctx, q); err != nil {
				return err
			}
			q = nil
		}
		if q == nil {
			q, made = &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "quota-"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, time.Now()
			if err := kube.Create(ctx, q); err != nil {
				return err
			}
		}
		if err := kube.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return err
		}
		for name := range hard {
			if _, counted := q.Status.Used[name]; !counted {
				return fmt.Errorf("%s is not counted yet", name)
			}
		}
		return nil
	})
	return q
}

// TestQuota puts a claim under a quota that has no room for its prime: the
// figures are told, once, and the room is used when there is some.
func TestQuota(t *testing.T) {
	t.Parallel() // like its cases, when no manager of another test runs
	cases := map[string]struct {
		reason  string
		hard    corev1.ResourceList
		figures string
		more    string
	}{
		"Count": {
			reason: "claim and prime are two claims",
			hard:   corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}, figures: "persistentvolumeclaims=1",
			more: `{"spec":{"hard":{"persistentvolumeclaims":"2"}}}`,
		},
		"Storage": {
			reason: "exactly the claim's size is not enough for the time that it takes to fill it",
			hard:   corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("10Mi")}, figures: "requests.storage=10Mi",
			more: `{"spec":{"hard":{"requests.storage":"20Mi"}}}`,
		},
		"ClassStorage": {
			reason:  "a quota may be of one class",
			hard:    corev1.ResourceList{simulate.ClassImmediate + ".storageclass.storage.k8s.io/requests.storage": resource.MustParse("10Mi")},
			figures: "requests.storage=10Mi",
			more:    `{"spec":{"hard":{"` + simulate.ClassImmediate + `.storageclass.storage.k8s.io/requests.storage":"20Mi"}}}`,
		},
		"Pods": {
			reason: "a namespace may have no room for the worker",
			hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}, figures: "pods=1",
			more: `{"spec":{"hard":{"pods":"1"}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := shared(t)
			s.populator(t, runs(0))
			s.source(t)
			quota := s.quota(t, tc.hard)
			claim := s.claim("claim", simulate.ClassImmediate)
			create(t, claim)
			p := waits(t, claim, v1alpha1.ReasonQuotaExceeded, soon)
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, tc.figures) {
				t.Errorf("%s: the message has no figures: %q", tc.reason, c.Message)
			}
			if err := kube.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(tc.more))); err != nil {
				t.Fatal(err)
			}
			bound(t, claim, 15*time.Second)
			clean(t, s.namespace, 5*time.Second)
			told(t, claim, "Warning "+v1alpha1.ReasonQuotaExceeded)
			if got := events(t, claim); len(got) > 3 {
				t.Errorf("%s: events on the claim are %q, want the refusal once", tc.reason, got)
			}
		})
	}
}

// TestQuotaOnPopulations has no room for the record in which a claim's state is
// kept. That too is told, once, and used when there is some.
func TestQuotaOnPopulations(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	s.source(t)
	quota := s.quota(t, corev1.ResourceList{"count/populations.sluice.dev": resource.MustParse("0")})
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	refusal := "Warning " + v1alpha1.ReasonQuotaExceeded
	told(t, claim, refusal)
	if err := kube.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"count/populations.sluice.dev":"1"}}}`))); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
	if got := warningsOn(t, claim); !slices.Equal(got, []string{refusal}) {
		t.Errorf("the warnings on the claim are %q, want the refusal once", got)
	}
}

// TestComputeQuotaAdmitsTheDefaultWorker fills a volume where a Pod without
// requests and limits is refused.
func TestComputeQuotaAdmitsTheDefaultWorker(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	s.source(t)
	s.quota(t, corev1.ResourceList{
		corev1.ResourceRequestsCPU: resource.MustParse("1"), corev1.ResourceLimitsCPU: resource.MustParse("1"),
		corev1.ResourceRequestsMemory: resource.MustParse("256Mi"), corev1.ResourceLimitsMemory: resource.MustParse("256Mi"),
	})
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
	if got := warningsOn(t, claim); len(got) > 0 {
		t.Errorf("the claim has events %q, want no Warning", got)
	}
}

// TestLimitRange puts the worker under limits that it breaks: the rule is told
// with its figures, and once it is away the claim is filled.
func TestLimitRange(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0))
	s.source(t)
	limits := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:                 corev1.LimitTypeContainer,
			Max:                  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
			MaxLimitRequestRatio: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2")},
		}}},
	}
	create(t, limits)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonRequestRefused, soon)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	for _, want := range []string{"maximum cpu usage per Container is 500m", "memory max limit to request ratio per Container is 2"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("the message is %q, want %q in it", c.Message, want)
		}
	}
	gone(t, limits)
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, 5*time.Second)
	if got := succeeded(t, claim, soon); got.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts: a refused worker is none", got.Spec.Attempt)
	}
}
