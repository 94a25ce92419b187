package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestComputedWorkersNeedOffers has a plugin compute a worker that mounts a
// Secret: where Secrets have to be offered, they have to be to it too, and to
// the kind of source that it serves.
func TestComputedWorkersNeedOffers(t *testing.T) {
	populator := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor"},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind: v1alpha1.SourceKind{Group: "vendor.example", Kind: "Backup"}, Plugin: &v1alpha1.Plugin{Socket: "/run/sluice/vendor.sock"},
		},
	}
	worker := &v1alpha1.WorkerTemplate{
		Image:        "vendor.example/restore",
		Volumes:      []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}},
		VolumeMounts: []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}},
	}
	for image, want := range map[string]bool{"": false, "example.com/sluice-worker": true} {
		p := &Programs{OfferImage: image}
		r := p.Given(populator, worker, &corev1.PersistentVolumeClaim{}, nil, 1)
		if r.Pod == nil {
			t.Fatalf("%s: %s", r.Reason, r.Message)
		}
		var asks *corev1.Container
		for i := range r.Pod.Spec.InitContainers {
			if c := &r.Pod.Spec.InitContainers[i]; c.Name == v1alpha1.OfferContainer {
				asks = c
			}
		}
		if (asks != nil) != want {
			t.Errorf("with image %q the offer of the Secret is looked for: %t, want %t", image, asks != nil, want)
		}
		if asks == nil {
			continue
		}
		if kind := asks.Env[0].Value; kind != "Backup.vendor.example" {
			t.Errorf("it is to be offered to %q, want the kind of the Populator", kind)
		}
	}
}
