package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// systemNamespace is the manager's own, as startManager has it.
const systemNamespace = "kube-node-lease"

var grantKind = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

// placement gives the populator one.
func placement(p v1alpha1.Placement) func(*v1alpha1.Populator) {
	return func(o *v1alpha1.Populator) { o.Spec.Placement = p }
}

func TestPlacementSystem(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	populator(t, runs(300*time.Millisecond), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "elsewhere", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 10*time.Second, "the prime is in the manager's namespace and the claim is held", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		left, err := temporaries(ctx, claim)
		if err != nil {
			return err
		}
		if len(left) == 0 || !strings.HasPrefix(left[0], systemNamespace+"/") || !slices.Contains(claim.Finalizers, v1alpha1.FinalizerPopulation) {
			return fmt.Errorf("temporaries %v, finalizers %v", left, claim.Finalizers)
		}
		return nil
	})
	bound(t, claim, 30*time.Second)
	p := succeeded(t, claim, 10*time.Second)
	if p.Spec.Namespace != systemNamespace {
		t.Errorf("the record says namespace %q, want %q", p.Spec.Namespace, systemNamespace)
	}
	eventually(t, 10*time.Second, "the claim is let go", letGo(claim))
	for _, e := range events(t, claim) {
		if strings.HasPrefix(e, corev1.EventTypeWarning) {
			t.Errorf("event %q after a population that went well", e)
		}
	}
}

func TestPlacementDeletedMeanwhile(t *testing.T) {
	startManager(t)
	ns := namespace(t)
	p := populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "deleted", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))

	// Nothing that a placement is decided from is there any more.
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Placement = v1alpha1.PlacementClaim
	if err := kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	gone(t, &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim.Name}})
	gone(t, claim)
	eventually(t, 10*time.Second, "temporaries are gone", letGo(claim))
}

func TestPlacementSweptWithoutClaim(t *testing.T) {
	ns := namespace(t)
	m := startManager(t)
	populator(t, runs(10*time.Minute), placement(v1alpha1.PlacementSystem))
	hello(t, ns)
	claim := newClaim(ns, "orphan", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 20*time.Second, "worker runs", workerRuns(systemNamespace))
	m.kill(t)

	// By hand the claim goes although nobody cleans up.
	if err := kube.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	gone(t, claim)
	if left, err := temporaries(t.Context(), claim); err != nil || len(left) == 0 {
		t.Fatalf("temporaries %v, %v, want those of the claim that is gone", left, err)
	}
	startManager(t)
	eventually(t, 20*time.Second, "a manager that starts sweeps", letGo(claim))
}

func TestPlacementSourceAndGrant(t *testing.T) {
	startManager(t)
	ns, data := namespace(t), namespace(t)
	populator(t, runs(time.Second), placement(v1alpha1.PlacementSource))
	hello(t, data)
	claim := newClaim(ns, "granted", simulate.ClassImmediate)
	claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: data}
	create(t, claim)
	p := waits(t, claim, v1alpha1.ReasonNotGranted, 5*time.Second)
	if m := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(m, "ReferenceGrant of the Gateway API is installed") {
		t.Errorf("message %q does not say that the kind is missing", m)
	}

	// The kind comes later, and is noticed.
	installGrants(t)
	grant(t, data, "wrong-kind", ns, "Other", "")
	grant(t, data, "wrong-name", ns, tutorialKind.Kind, "other")
	eventually(t, 30*time.Second, "the message speaks of grants that were read", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c.Reason != v1alpha1.ReasonNotGranted || strings.Contains(c.Message, "installed") {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
		return nil
	})
	right := grant(t, data, "by-name", ns, tutorialKind.Kind, sourceName)
	bound(t, claim, 15*time.Second)
	p = succeeded(t, claim, 10*time.Second)
	if p.Spec.Namespace != data || p.Status.Source == nil || p.Status.Source.Namespace != data {
		t.Errorf("the record says namespace %q and source %+v, want both in %q", p.Spec.Namespace, p.Status.Source, data)
	}
	eventually(t, 10*time.Second, "the claim is let go", letGo(claim))

	// A grant that is taken back stops a worker.
	late := newClaim(ns, "revoked", simulate.ClassImmediate)
	late.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: data}
	create(t, late)
	eventually(t, 20*time.Second, "worker is there", func(ctx context.Context) error {
		left, err := temporaries(ctx, late)
		if err == nil && len(left) < 2 {
			err = fmt.Errorf("temporaries %v", left)
		}
		return err
	})
	gone(t, right)
	waits(t, late, v1alpha1.ReasonGrantRevoked, 5*time.Second)
	eventually(t, 15*time.Second, "the volume that was begun is gone", noVolumes(data))
	gone(t, late)
	eventually(t, 10*time.Second, "the claim is let go", letGo(late))
}

// letGo says what keeps a claim from being rid of us: its finalizer, or a
// temporary in any namespace.
func letGo(claim *corev1.PersistentVolumeClaim) func(context.Context) error {
	return func(ctx context.Context) error {
		var now corev1.PersistentVolumeClaim
		err := kube.Get(ctx, client.ObjectKeyFromObject(claim), &now)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case slices.Contains(now.Finalizers, v1alpha1.FinalizerPopulation):
			return errors.New("the claim is held")
		}
		left, err := temporaries(ctx, claim)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	}
}

// temporaries are the primes and workers of a claim, as namespace/name.
func temporaries(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	of := client.MatchingLabels{v1alpha1.LabelClaimUID: string(claim.UID)}
	var primes corev1.PersistentVolumeClaimList
	if err := kube.List(ctx, &primes, of); err != nil {
		return nil, err
	}
	var workers corev1.PodList
	if err := kube.List(ctx, &workers, of); err != nil {
		return nil, err
	}
	var out []string
	for i := range primes.Items {
		out = append(out, primes.Items[i].Namespace+"/"+primes.Items[i].Name)
	}
	for i := range workers.Items {
		out = append(out, workers.Items[i].Namespace+"/"+workers.Items[i].Name)
	}
	return out, nil
}

// installGrants makes the kind ReferenceGrant, as much of it as is looked at,
// and removes it when the test ends.
func installGrants(t *testing.T) {
	t.Helper()
	open := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "referencegrants." + grantKind.Group,
			Annotations: map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/1"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: grantKind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "referencegrants", Singular: "referencegrant", Kind: grantKind.Kind, ListKind: "ReferenceGrantList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: grantKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &open,
				}},
			}},
		},
	}
	create(t, crd)
	t.Cleanup(func() { gone(t, crd) })
}

// grant lets claims of a namespace refer to sources of a kind, all or one.
func grant(t *testing.T, in, name, claims, kind, source string) *unstructured.Unstructured {
	t.Helper()
	to := map[string]any{"group": tutorialKind.Group, "kind": kind}
	if source != "" {
		to["name"] = source
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": claims}},
		"to":   []any{to},
	}}}
	u.SetGroupVersionKind(grantKind)
	u.SetNamespace(in)
	u.SetName(name)
	eventually(t, 10*time.Second, "grant "+name+" is made", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(kube.Create(ctx, u.DeepCopy())) // the kind may be new
	})
	return u
}
