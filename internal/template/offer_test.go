package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestRequireOffers(t *testing.T) {
	const image = "images.example/sluice-worker:1"
	secrets := func(s *v1alpha1.PopulatorSpec) {
		s.Worker.Volumes = []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "one", Optional: ptr.To(true)}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "two"}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "one"}}},
			}}}},
		}
		s.Worker.Env = append(s.Worker.Env, corev1.EnvVar{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "three"}, Key: "token"},
		}})
	}
	ours := func(s *v1alpha1.PopulatorSpec) { s.Worker.Image, s.Worker.Command = image, nil }
	cases := map[string]struct {
		reason string
		change []func(*v1alpha1.PopulatorSpec)
		image  string
		looks  []string // paths that the container which looks for offers has
		told   bool     // whether the worker itself is told to look
	}{
		"NotRequired": {reason: "Where no offer is required nothing is looked into", change: []func(*v1alpha1.PopulatorSpec){secrets}},
		"NoSecret":    {reason: "Nor for a worker without Secrets", image: image},
		"Foreign": {
			reason: "Before a foreign image each Secret is looked into once, however the worker reads it",
			change: []func(*v1alpha1.PopulatorSpec){secrets}, image: image,
			looks: []string{"/sluice/offers/one", "/sluice/offers/two", "/sluice/offers/three"},
		},
		"Ours": {reason: "Our own worker looks itself: it knows the hosts", change: []func(*v1alpha1.PopulatorSpec){secrets, ours}, image: image, told: true},
		"OursCommand": {
			reason: "Unless the template runs something else of its image",
			change: []func(*v1alpha1.PopulatorSpec){secrets, ours, func(s *v1alpha1.PopulatorSpec) { s.Worker.Command = []string{"sh"} }}, image: image,
			looks: []string{"/sluice/offers/one", "/sluice/offers/two", "/sluice/offers/three"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := Input{Claim: helloClaim(), Source: helloSource("a", "b")}
			in.OfferImage = tc.image
			r := mustCompile(t, helloSpec(tc.change...)).Render(in)
			if r.Pod == nil {
				t.Fatalf("%s: %s", r.Reason, r.Message)
			}
			var looks []string
			for _, c := range r.Pod.Spec.InitContainers {
				if c.Name != v1alpha1.OfferContainer || c.Image != image {
					t.Errorf("container %q of image %q", c.Name, c.Image)
				}
				for _, m := range c.VolumeMounts {
					looks = append(looks, m.MountPath)
				}
			}
			if diff := cmp.Diff(tc.looks, looks); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			for _, v := range r.Pod.Spec.Volumes {
				if strings.HasPrefix(v.Name, offerVolume) && ptr.Deref(v.Secret.Optional, false) {
					t.Errorf("Secret %q may appear after it was looked for", v.Secret.SecretName)
				}
			}
			told := false
			for _, e := range r.Pod.Spec.Containers[0].Env {
				told = told || e.Name == envRequireOffer && e.Value == "Hello.hello.k8s.io"
			}
			if told != tc.told {
				t.Errorf("%s: worker is told %t, want %t", tc.reason, told, tc.told)
			}
		})
	}
}

// TestOffersOfComputedWorkers shows that a plugin cannot have Sluice's own worker
// read a Secret unseen, whatever it has it called with.
func TestOffersOfComputedWorkers(t *testing.T) {
	const image = "images.example/sluice-worker:1"
	p, errs := Given(v1alpha1.SourceKind{Group: "hello.k8s.io", Kind: "Hello"}, &v1alpha1.WorkerTemplate{
		Image: image, Args: []string{"http", "-require-offer="},
		Volumes: []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "one"}}}},
	})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	in := Input{Claim: helloClaim(), Source: helloSource("a", "b")}
	in.OfferImage = image
	r := p.Render(in)
	if r.Pod == nil {
		t.Fatalf("%s: %s", r.Reason, r.Message)
	}
	if c := r.Pod.Spec.InitContainers; len(c) != 1 || c[0].Name != v1alpha1.OfferContainer {
		t.Errorf("containers before the worker: %+v, want the one that looks for offers", c)
	}
}
