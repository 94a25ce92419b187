package population

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
)

// A scene is where one test plays: a namespace of its own and a source kind.
type scene struct {
	namespace string
	kind      schema.GroupVersionKind
}

// alone returns the scene of a test that starts, stops and kills managers
// itself: no other test runs meanwhile.
func alone(t *testing.T) *scene {
	t.Helper()
	return &scene{namespace: namespace(t), kind: tutorialKind}
}

// shared lets a test run beside others, on the manager that they share, and
// returns its scene. The source kind is the test's own, so that its Populator
// serves nobody else. A test whose cases are shared has to be parallel itself.
func shared(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	sharedManager(t)
	s := &scene{namespace: namespace(t), kind: ownKind(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the manager said of namespace %q:\n%s", s.namespace, managerOn(s.namespace))
		}
	})
	return s
}

// tutorialKind is the source kind of the tutorial.
var tutorialKind = schema.GroupVersionKind{Group: "hello.k8s.io", Version: "v1alpha1", Kind: "Hello"}

// tutorialDefinition is its definition, of which those of other scenes are
// copies in another group.
var tutorialDefinition *apiextensionsv1.CustomResourceDefinition

// scenes counts the groups that were made.
var scenes atomic.Int64

// ownKind defines a source kind that nobody else uses. It stays until the
// cluster ends.
func ownKind(t *testing.T) schema.GroupVersionKind {
	t.Helper()
	kind := tutorialKind
	kind.Group = fmt.Sprintf("scene-%d.example", scenes.Add(1))
	if err := define(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: tutorialDefinition.Spec.Names.Plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: tutorialDefinition.Spec.Scope,
			Names: tutorialDefinition.Spec.Names, Versions: tutorialDefinition.Spec.Versions,
		},
	}); err != nil {
		t.Fatal(err)
	}
	return kind
}

// namespace makes a namespace for one test. The claims in it are gone before
// the test ends.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := vacate(ctx, ns.Name); err != nil {
			t.Errorf("clear namespace %q: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// vacate deletes what a namespace holds, and the namespace. Kubernetes begins to
// empty a namespace five seconds after it was deleted, and no test needs to
// wait for that.
func vacate(ctx context.Context, namespace string) error {
	in := client.InNamespace(namespace)
	if err := kube.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, in); err != nil {
		return fmt.Errorf("delete claims: %w", err)
	}
	if err := kube.DeleteAllOf(ctx, &corev1.Pod{}, in, client.HasLabels{labelConsumer}, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete consumers: %w", err)
	}
	if err := clustertest.Until(ctx, func() (bool, error) {
		var claims corev1.PersistentVolumeClaimList
		err := kube.List(ctx, &claims, in)
		return err == nil && len(claims.Items) == 0, err
	}); err != nil {
		return fmt.Errorf("wait for claims to go: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	return client.IgnoreNotFound(kube.Delete(ctx, ns))
}

// populator makes the Populator of the scene's sources and waits until it is
// accepted. Annotations are those of the workers.
func (s *scene) populator(t *testing.T, annotations map[string]string, change ...func(*v1alpha1.Populator)) *v1alpha1.Populator {
	t.Helper()
	p := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind: v1alpha1.SourceKind{Group: s.kind.Group, Kind: s.kind.Kind},
			Validations: []v1alpha1.Validation{{
				Rule: `source.spec.fileName.matches("^[A-Za-z0-9][A-Za-z0-9._-]*$")`, Message: "fileName must be a plain file name",
			}},
			Worker: &v1alpha1.WorkerTemplate{
				Annotations: annotations,
				Image:       "busybox",
				Command:     []string{"sh", "-c", `printf "%s\n" "$CONTENTS" > "$SLUICE_TARGET/$NAME"`},
				Env: []corev1.EnvVar{
					{Name: "NAME", Value: "${source.spec.fileName}"},
					{Name: "CONTENTS", Value: "${source.spec.fileContents}"},
				},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	if err := kube.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone(t, p) })
	accept(t, p)
	return p
}

// class makes a storage class that only this test uses, like one of the
// simulator's.
func (s *scene) class(t *testing.T, like string) string {
	t.Helper()
	theirs := &storagev1.StorageClass{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: like}, theirs); err != nil {
		t.Fatal(err)
	}
	ours := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: theirs.Provisioner,
		ReclaimPolicy: theirs.ReclaimPolicy, VolumeBindingMode: theirs.VolumeBindingMode,
	}
	create(t, ours)
	t.Cleanup(func() { gone(t, ours) })
	return ours.Name
}

// sourceName is the name of the source of every claim.
const sourceName = "source"

// source makes the source in the scene's namespace.
func (s *scene) source(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return s.sourceIn(t, s.namespace)
}

// sourceIn makes the source in a namespace.
func (s *scene) sourceIn(t *testing.T, namespace string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"fileName": "example.txt", "fileContents": "Hello, world!"},
	}}
	u.SetGroupVersionKind(s.kind)
	u.SetNamespace(namespace)
	u.SetName(sourceName)
	create(t, u)
	return u
}

// claim is a claim of the source, not created yet.
func (s *scene) claim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To(s.kind.Group), Kind: s.kind.Kind, Name: sourceName},
		},
	}
}

// populator, hello and newClaim are for tests that are alone, and all of whose
// claims are of the tutorial's kind.
func populator(t *testing.T, annotations map[string]string, change ...func(*v1alpha1.Populator)) *v1alpha1.Populator {
	t.Helper()
	return (&scene{namespace: "hello", kind: tutorialKind}).populator(t, annotations, change...)
}

func hello(t *testing.T, ns string) {
	t.Helper()
	(&scene{kind: tutorialKind}).sourceIn(t, ns)
}

func newClaim(ns, name, class string) *corev1.PersistentVolumeClaim {
	return (&scene{namespace: ns, kind: tutorialKind}).claim(name, class)
}
