package datasource

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const namespace = metav1.NamespaceDefault

// sources are the two fields that the rules are about.
type sources struct {
	DataSource    *corev1.TypedLocalObjectReference
	DataSourceRef *corev1.TypedObjectReference
}

func sourcesOf(c *corev1.PersistentVolumeClaim) sources {
	return sources{DataSource: c.Spec.DataSource, DataSourceRef: c.Spec.DataSourceRef}
}

// local refers to an object of the claim's namespace in the old field.
func local(group, kind, name string) *corev1.TypedLocalObjectReference {
	r := &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if group != "" {
		r.APIGroup = ptr.To(group)
	}
	return r
}

// ref refers to an object of the claim's namespace in the new field.
func ref(group, kind, name string) *corev1.TypedObjectReference {
	r := &corev1.TypedObjectReference{Kind: kind, Name: name}
	if group != "" {
		r.APIGroup = ptr.To(group)
	}
	return r
}

// refIn refers to an object of another namespace.
func refIn(namespace, group, kind, name string) *corev1.TypedObjectReference {
	r := ref(group, kind, name)
	r.Namespace = ptr.To(namespace)
	return r
}

const (
	helloGroup    = "hello.k8s.io"
	snapshotGroup = "snapshot.storage.k8s.io"
)

func claim(s sources) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			},
			DataSource:    s.DataSource,
			DataSourceRef: s.DataSourceRef,
		},
	}
}

// create makes a claim and reads it back, so that what is compared is what was
// stored. The claim goes with the test.
func create(t *testing.T, client kubernetes.Interface, s sources) (*corev1.PersistentVolumeClaim, error) {
	t.Helper()
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	made, err := claims.Create(t.Context(), claim(s), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		// Admission adds the protection finalizer, and no controller runs that would remove it.
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := claims.Patch(ctx, made.Name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("free claim %q: %v", made.Name, err)
		}
		if err := claims.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete claim %q: %v", made.Name, err)
		}
	})
	stored, err := claims.Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored, nil
}
