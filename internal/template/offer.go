package template

import (
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// How the container that looks for offers is made.
const (
	// envRequireOffer tells Sluice's own worker the kind that its Secrets must be
	// offered to.
	envRequireOffer = "SOURCE_REQUIRE_OFFER"

	offersPath         = "/sluice/offers"
	offerVolume        = "sluice-offer-"
	offerCommand       = "offered"
	offersEnv          = "SOURCE_SECRETS"
	offerMode    int32 = 0o440
)

// requireOffers sees to it that every Secret in a worker was offered by its
// owner to the kind of the source before the worker can read it. Sluice's own
// image looks itself, since it knows the hosts too; before any other worker comes a
// container of that image, which has a mount of its own of each Secret. None of
// them is optional, even where the worker's own mount is: the kubelet would show
// a Secret that appears later to a worker that runs, and nobody would have looked.
func (p *Program) requireOffers(pod *corev1.Pod, image string) {
	secrets := secretsOf(pod)
	if image == "" || len(secrets) == 0 {
		return
	}
	worker := &pod.Spec.Containers[0]
	// A worker that a plugin computed could tell ours by its arguments not to look.
	if !p.given && worker.Image == image && len(worker.Command) == 0 {
		worker.Env = append(worker.Env, corev1.EnvVar{Name: envRequireOffer, Value: p.String()})
		return
	}
	c := corev1.Container{
		Name: v1alpha1.OfferContainer, Image: image, Args: []string{offerCommand},
		Env: []corev1.EnvVar{
			{Name: envRequireOffer, Value: p.String()},
			{Name: offersEnv, Value: offersPath},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext:          securityContext(nil, false),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	for i, name := range secrets {
		volume := offerVolume + strconv.Itoa(i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To(offerMode)},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path.Join(offersPath, name), ReadOnly: true})
	}
	pod.Spec.InitContainers = append([]corev1.Container{c}, pod.Spec.InitContainers...)
}

// secretsOf are the names of the Secrets that a worker can read, each once.
func secretsOf(pod *corev1.Pod) []string {
	var names []string
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			add(v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					add(s.Secret.Name)
				}
			}
		}
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			add(e.ValueFrom.SecretKeyRef.Name)
		}
	}
	return names
}
