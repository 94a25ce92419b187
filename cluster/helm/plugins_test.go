package helm_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// TestSidecars has plugins share a folder with the manager, and nothing else.
func TestSidecars(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "plugin-go", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	pod := object[*appsv1.Deployment](t, render(t, values), "Deployment/sluice-manager").Spec.Template.Spec
	if len(pod.Containers) != 2 || pod.Containers[0].Name != "manager" {
		t.Fatalf("the Pod has containers %+v, want the manager first and the example", pod.Containers)
	}
	manager, plugin := pod.Containers[0], pod.Containers[1]
	if diff := cmp.Diff([]corev1.VolumeMount{{Name: "plugins", MountPath: "/run/sluice"}}, plugin.VolumeMounts); diff != "" {
		t.Errorf("mounts of the plugin, -want +got:\n%s", diff)
	}
	paths := map[string]bool{}
	for _, m := range manager.VolumeMounts {
		paths[m.MountPath] = true
	}
	if !paths["/run/sluice"] || !paths["/var/run/secrets/kubernetes.io/serviceaccount"] {
		t.Errorf("the manager has mounts %v, want the shared folder and its token", paths)
	}
	if ptr.Deref(pod.AutomountServiceAccountToken, true) {
		t.Error("plugins get the manager's token")
	}
	for _, name := range []string{"plugins", "token"} {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			t.Errorf("the Pod has no volume %q", name)
		}
	}

	alone := object[*appsv1.Deployment](t, render(t, nil), "Deployment/sluice-manager").Spec.Template.Spec
	if len(alone.Containers) != 1 || alone.AutomountServiceAccountToken != nil {
		t.Errorf("without plugins the Pod has %d containers and automount %v, want the manager as it was", len(alone.Containers), alone.AutomountServiceAccountToken)
	}
}
