package webhook

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The API server's gate CrossNamespaceVolumeDataSource is off here, as by
// default.

func TestSourceThatTheServerDropsIsRefused(t *testing.T) {
	claim := claimOf("default", "hello.k8s.io", "Hello")
	claim.Spec.DataSourceRef.Namespace = ptr.To("kube-public")
	err := kube.Create(t.Context(), claim)
	if err == nil {
		remove(t, claim)
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Fatalf("create: %v, want the claim refused", err)
	}
	for _, want := range []string{"namespace kube-public", "bound empty", v1alpha1.AnnotationSourceNamespace} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %q does not say %q", err, want)
		}
	}
}

func TestSourceNamespaceByAnnotation(t *testing.T) {
	claim := claimOf("default", "hello.k8s.io", "Hello")
	claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: "kube-public"}
	create(t, kube, claim)
	if claim.Spec.DataSourceRef == nil {
		t.Error("the claim lost its source")
	}
}

func TestTwoSourceNamespacesAreRefused(t *testing.T) {
	claim := claimOf("default", "hello.k8s.io", "Hello")
	claim.Spec.DataSourceRef.Namespace = ptr.To("kube-public")
	claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: "kube-system"}
	err := kube.Create(t.Context(), claim)
	if err == nil {
		remove(t, claim)
	}
	if err == nil || !strings.Contains(err.Error(), "leave one of them out") {
		t.Errorf("create: %v, want the contradiction refused", err)
	}
}
