package population

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
	"github.com/sluice-dev/sluice/cluster/simulate"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

var grantKind = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

// TestCrossNamespaceGateOff is about an API server as it is by default: the
// namespace of a source stands in an annotation. That a claim is refused which
// says it in dataSourceRef is shown with the webhooks.
func TestCrossNamespaceGateOff(t *testing.T) {
	crossNamespace(t, func(claim *corev1.PersistentVolumeClaim, data string) {
		claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: data}
	})
}

// TestCrossNamespaceGateOn is about an API server with the gate
// CrossNamespaceVolumeDataSource, on a cluster beside the first: dataSourceRef
// may name the namespace, alone or with the annotation that the chart's webhook
// adds, and the chart's policy lets such claims pass.
func TestCrossNamespaceGateOn(t *testing.T) {
	anotherCluster(t, map[string]bool{"CrossNamespaceVolumeDataSource": true})
	guardDroppedSources(t)
	for name, marked := range map[string]bool{"Field": false, "FieldAndMark": true} {
		t.Run(name, func(t *testing.T) {
			crossNamespace(t, func(claim *corev1.PersistentVolumeClaim, data string) {
				claim.Spec.DataSourceRef.Namespace = ptr.To(data)
				if marked {
					claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: data}
				}
			})
		})
	}
}

// crossNamespace fills a claim from a source of another namespace: without the
// kind ReferenceGrant, without a grant that covers it, with one, and with one
// that is taken back while a worker runs. Never is the claim bound but to what a
// worker has filled. point lets a claim name its source's namespace.
func crossNamespace(t *testing.T, point func(claim *corev1.PersistentVolumeClaim, data string)) {
	t.Helper()
	startManager(t)
	ns, data := namespace(t), namespace(t)
	populator(t, runs(time.Second), placement(v1alpha1.PlacementSource))
	hello(t, data)
	claim := newClaim(ns, "granted", simulate.ClassImmediate)
	point(claim, data)
	create(t, claim)
	if claim.Spec.DataSourceRef == nil {
		t.Fatal("the API server dropped the source")
	}
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
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	if left, err := temporaries(t.Context(), claim); err != nil || len(left) > 0 || claim.Spec.VolumeName != "" {
		t.Errorf("without a grant there are %v (%v), and the claim names volume %q", left, err, claim.Spec.VolumeName)
	}
	right := grant(t, data, "by-name", ns, tutorialKind.Kind, sourceName)
	eventually(t, 5*time.Second, "work has begun", begun(claim, 1))
	volume := bound(t, claim, 15*time.Second)
	if volume.Labels[v1alpha1.LabelRole] != populate.RoleFilled {
		t.Errorf("the claim is bound to a volume with labels %v, want a filled one", volume.Labels)
	}
	p = succeeded(t, claim, 10*time.Second)
	if p.Spec.Namespace != data || p.Status.Source == nil || p.Status.Source.Namespace != data {
		t.Errorf("the record says namespace %q and source %+v, want both in %q", p.Spec.Namespace, p.Status.Source, data)
	}
	eventually(t, 10*time.Second, "the claim is let go", letGo(claim))

	// A grant that is taken back stops a worker.
	late := newClaim(ns, "revoked", simulate.ClassImmediate)
	point(late, data)
	create(t, late)
	eventually(t, 20*time.Second, "worker is there", begun(late, 2))
	gone(t, right)
	waits(t, late, v1alpha1.ReasonGrantRevoked, 5*time.Second)
	eventually(t, 15*time.Second, "the volume that was begun is gone", noVolumes(data))
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(late), late); err != nil || late.Spec.VolumeName != "" {
		t.Errorf("the claim whose grant was taken back names volume %q (%v)", late.Spec.VolumeName, err)
	}
	gone(t, late)
	eventually(t, 10*time.Second, "the claim is let go", letGo(late))
}

// begun waits for a number of temporaries.
func begun(claim *corev1.PersistentVolumeClaim, n int) func(context.Context) error {
	return func(ctx context.Context) error {
		left, err := temporaries(ctx, claim)
		if err == nil && len(left) < n {
			err = fmt.Errorf("temporaries %v; %s", left, describe(ctx, claim))
		}
		return err
	}
}

// anotherCluster has a test, which runs alone, on a cluster of its own with
// these gates.
func anotherCluster(t *testing.T, gates map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	firstCluster, firstClient := cluster, kube
	t.Cleanup(func() { cluster, kube = firstCluster, firstClient })
	c, err := clustertest.Start(ctx, clustertest.Config{FeatureGates: gates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the second cluster: %v", err)
		}
	})
	cluster = c
	if err := prepare(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := simulate.Start(ctx, c.RESTConfig(), simulate.Config{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop the second cluster's nodes: %v", err)
		}
	})
}

// guardDroppedSources installs the chart's policy against claims whose source an
// API server has dropped.
func guardDroppedSources(t *testing.T) {
	t.Helper()
	text, err := helm.Sluice(repository, cluster.Kubeconfig, "").Template(t.Context(), config.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetName() == "sluice-dropped-sources" {
			create(t, o)
			made++
		}
	}
	if made != 2 {
		t.Fatalf("the chart has %d objects of the policy, want it and its binding", made)
	}
	eventually(t, 30*time.Second, "the policy is in force", func(ctx context.Context) error {
		claim := newClaim("default", "dropped", simulate.ClassImmediate)
		claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: "library"}
		claim.Spec.DataSourceRef = nil
		err := kube.Create(ctx, claim, client.DryRunAll)
		switch {
		case err == nil:
			return errors.New("a claim without a source is accepted")
		case strings.Contains(err.Error(), "bound empty"):
			return nil
		}
		return err
	})
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
