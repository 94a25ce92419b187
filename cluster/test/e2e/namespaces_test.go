package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// label puts a label onto a namespace.
func label(t *testing.T, namespace, key, value string) {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = namespace
	patch := `{"metadata":{"labels":{"` + key + `":"` + value + `"}}}`
	if err := kube.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("label namespace %q: %v", namespace, err)
	}
}

// TestRestrictedNamespace fills a volume where Pod Security is enforced as
// strictly as it goes, and shows that the manager's own Pods keep to it.
func TestRestrictedNamespace(t *testing.T) {
	t.Parallel()
	ns := space(t)
	label(t, ns, "pod-security.kubernetes.io/enforce", "restricted")
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "x"}))
	create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src"))
	succeeded(t, ns, "claim")
	quiet(t, ns, waitedForNobody)

	// The API server warns of Pods that a stricter level would refuse.
	out := mustKubectl(t, "label", "--dry-run=server", "--overwrite", "namespace", helm.Namespace, "pod-security.kubernetes.io/enforce=restricted")
	if strings.Contains(out, "Warning") {
		t.Errorf("the manager's Pods do not keep to the restricted profile: %s", out)
	}
}

// TestIgnoredNamespace labels a namespace that Sluice is to keep out of.
func TestIgnoredNamespace(t *testing.T) {
	t.Parallel()
	ignored, other := space(t), space(t)
	label(t, ignored, v1alpha1.LabelIgnore, "true")
	for _, ns := range []string{ignored, other} {
		create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "x"}))
		create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src"))
	}
	succeeded(t, other, "claim")
	// The claim that was made later is done: the first one was seen long ago.
	if _, err := populationOf(t.Context(), ignored, "claim"); err == nil {
		t.Error("a claim in an ignored namespace has a Population")
	}
	if events, err := ourEvents(t.Context(), ignored); err != nil || len(events) > 0 {
		t.Errorf("events of ours in an ignored namespace: %v (%v)", events, err)
	}
	claim, err := claimOf(t.Context(), ignored, "claim")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := temporaries(t.Context(), claim.UID); err != nil || len(found) > 0 {
		t.Errorf("temporaries in an ignored namespace: %v (%v)", found, err)
	}
}
