package apply

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

const (
	claimUIDValue = types.UID("claim-uid")
	objectName    = "sluice-claim-uid-1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// applier returns an Applier on a fake API server with some objects.
func applier(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Applier, client.Client) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithStatusSubresource(&v1alpha1.Population{}).
		WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return New(c, c, nobody{}), c
}

// nobody is a Caller that calls nobody.
type nobody struct{}

func (nobody) Call(populate.CallPlugin) {}

func labelled(uid types.UID) map[string]string {
	return map[string]string{v1alpha1.LabelClaimUID: string(uid)}
}

func prime(labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: objectName, Labels: labels}}
}

func pod(labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: objectName, Labels: labels}}
}

func files(labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: objectName, Labels: labels}}
}

func population() *v1alpha1.Population {
	return &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: "7"},
		Spec:       v1alpha1.PopulationSpec{ClaimUID: claimUIDValue, Attempt: 1, Nonce: "12345678"},
	}
}

func volume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid", ResourceVersion: "7", Labels: map[string]string{"old": "label", "keep": "it"}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: objectName, UID: "prime-uid",
				ResourceVersion: "3", FieldPath: "spec",
			},
		},
	}
}

func TestRebindReplacesTheReferenceWhole(t *testing.T) {
	a, c := applier(t, interceptor.Funcs{}, volume())
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "claim", UID: claimUIDValue}
	out, err := a.Apply(t.Context(), populate.Rebind{
		Volume: "pv", UID: "pv-uid", ResourceVersion: "7", ClaimRef: ref,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
		Labels:      map[string]string{"new": "label", "old": ""},
	})
	if err != nil || len(out.Objects) != 1 {
		t.Fatalf("outcome is %+v, %v", out, err)
	}
	got := &corev1.PersistentVolume{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "pv"}, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&ref, got.Spec.ClaimRef); diff != "" {
		t.Errorf("claimRef (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"new": "label", "keep": "it"}, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, got.Spec.AccessModes); diff != "" {
		t.Errorf("access modes (-want +got):\n%s", diff)
	}
}

func TestStepsThatPatchHoldOnlyForTheVersionThatWasJudged(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "claim", UID: claimUIDValue, ResourceVersion: "7",
		Annotations: map[string]string{annotationSelectedNode: "node", "other": "one"}, Finalizers: []string{"other/one"},
	}}
	held := prime(labelled(claimUIDValue))
	held.UID, held.ResourceVersion, held.Finalizers = "prime-uid", "7", []string{"other/one", v1alpha1.FinalizerPlugin}
	cases := map[string]struct {
		reason string
		step   func(resourceVersion string) populate.Step
		// check looks at the object after the step held.
		check func(t *testing.T, got client.Object)
	}{
		"Allocate": {
			reason: "the attempt is the token: a late writer must not take it twice",
			step: func(rv string) populate.Step {
				return populate.Allocate{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: rv, To: 2}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if p, ok := got.(*v1alpha1.Population); !ok || p.Spec.Attempt != 2 || p.Spec.Nonce != "12345678" {
					t.Errorf("got %+v", got)
				}
			},
		},
		"WriteStatus": {
			reason: "a status decided on an old Population could hide what another manager found",
			step: func(rv string) populate.Step {
				return populate.WriteStatus{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: rv,
					Status: v1alpha1.PopulationStatus{Phase: v1alpha1.PhaseWaiting}}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if p, ok := got.(*v1alpha1.Population); !ok || p.Status.Phase != v1alpha1.PhaseWaiting || p.Spec.Attempt != 1 {
					t.Errorf("got %+v", got)
				}
			},
		},
		"SetReclaimPolicy": {
			reason: "the volume may have been handed over since",
			step: func(rv string) populate.Step {
				return populate.SetReclaimPolicy{Volume: "pv", UID: "pv-uid", ResourceVersion: rv, Policy: corev1.PersistentVolumeReclaimRetain}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if v, ok := got.(*corev1.PersistentVolume); !ok || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
					t.Errorf("got %+v", got)
				}
			},
		},
		"LabelVolume": {
			reason: "the volume may be another by now",
			step: func(rv string) populate.Step {
				return populate.LabelVolume{Volume: "pv", UID: "pv-uid", ResourceVersion: rv, Labels: map[string]string{"old": ""}}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if diff := cmp.Diff(map[string]string{"keep": "it"}, got.GetLabels()); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
			},
		},
		"ReleaseForeign": {
			reason: "somebody may have bound the volume since",
			step: func(rv string) populate.Step {
				return populate.ReleaseForeign{Volume: "pv", UID: "pv-uid", ResourceVersion: rv}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if v, ok := got.(*corev1.PersistentVolume); !ok || v.Spec.ClaimRef != nil {
					t.Errorf("got %+v", got)
				}
			},
		},
		"UnselectNode": {
			reason: "the scheduler may have chosen another node since",
			step: func(rv string) populate.Step {
				return populate.UnselectNode{Namespace: "ns", Name: "claim", UID: claimUIDValue, ResourceVersion: rv}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if diff := cmp.Diff(map[string]string{"other": "one"}, got.GetAnnotations()); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
			},
		},
		"ReleasePrime": {
			reason: "others have finalizers of their own in the same list, and another plugin may be at work on a prime of that name",
			step: func(rv string) populate.Step {
				return populate.ReleasePrime{Namespace: "ns", Name: objectName, UID: "prime-uid", ResourceVersion: rv, Finalizers: []string{"other/one"}}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if diff := cmp.Diff([]string{"other/one"}, got.GetFinalizers()); diff != "" {
					t.Errorf("finalizers (-want +got):\n%s", diff)
				}
			},
		},
		"SetFinalizer": {
			reason: "others have finalizers of their own in the same list",
			step: func(rv string) populate.Step {
				return populate.SetFinalizer{Namespace: "ns", Name: "claim", UID: claimUIDValue, ResourceVersion: rv, Present: true}
			},
			check: func(t *testing.T, got client.Object) {
				t.Helper()
				if diff := cmp.Diff([]string{"other/one", v1alpha1.FinalizerPopulation}, got.GetFinalizers()); diff != "" {
					t.Errorf("finalizers (-want +got):\n%s", diff)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := applier(t, interceptor.Funcs{}, population(), volume(), claim.DeepCopy(), held.DeepCopy())
			out, err := a.Apply(t.Context(), tc.step("6"))
			if err != nil || !out.Stale || len(out.Objects) > 0 {
				t.Errorf("%s: with an old resourceVersion the outcome is %+v, %v; want stale", tc.reason, out, err)
			}
			out, err = a.Apply(t.Context(), tc.step("7"))
			if err != nil || !out.done() || len(out.Objects) != 1 {
				t.Fatalf("%s: outcome is %+v, %v", tc.reason, out, err)
			}
			tc.check(t, out.Objects[0])
		})
	}
}

func TestDeletesCarryPreconditions(t *testing.T) {
	cases := map[string]populate.Step{
		"population": populate.DeletePopulation{Namespace: "ns", Name: "claim", UID: "u"},
		"prime":      populate.DeletePrime{Namespace: "ns", Name: objectName, UID: "u", ResourceVersion: "9"},
		"worker":     populate.DeleteWorker{Namespace: "ns", Name: objectName, UID: "u", ResourceVersion: "9"},
	}
	for name, step := range cases {
		t.Run(name, func(t *testing.T) {
			var got client.DeleteOptions
			a, _ := applier(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
				got.ApplyOptions(opts)
				return nil
			}})
			out, err := a.Apply(t.Context(), step)
			if err != nil || out.Deleted != "u" {
				t.Fatalf("outcome is %+v, %v", out, err)
			}
			want := &metav1.Preconditions{UID: ptr.To(types.UID("u"))}
			if name != "population" {
				want.ResourceVersion = ptr.To("9")
			}
			if diff := cmp.Diff(want, got.Preconditions); diff != "" {
				t.Errorf("preconditions (-want +got):\n%s", diff)
			}
			if got.PropagationPolicy == nil || *got.PropagationPolicy != metav1.DeletePropagationBackground {
				t.Errorf("propagation is %v, want background", got.PropagationPolicy)
			}
		})
	}
}

func TestDeleteOutcomes(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	failure := errors.New("connection lost")
	cases := map[string]struct {
		err     error
		want    Outcome
		wantErr error
	}{
		"gone already":  {err: apierrors.NewNotFound(resource, objectName), want: Outcome{Deleted: "u"}},
		"another by it": {err: apierrors.NewConflict(resource, objectName, failure), want: Outcome{Stale: true}},
		"no answer":     {err: failure, wantErr: failure},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := applier(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return tc.err
			}})
			got, err := a.Apply(t.Context(), populate.DeleteWorker{Namespace: "ns", Name: objectName, UID: "u"})
			if !errors.Is(err, tc.wantErr) {
				t.Errorf("error is %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
