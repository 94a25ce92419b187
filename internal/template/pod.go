package template

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// workerID is the user and group of a worker that names none.
const workerID int64 = 65532

// terminationGrace bounds how long deleting a claim waits for its worker.
const terminationGrace int64 = 5

// pod makes the worker out of its template and rendered env: complete but for
// its identity and the two volumes that depend on it (TargetVolume and, when
// there are files, FilesVolume), which whoever names the Pod adds. What the
// template leaves out is admitted by the restricted Pod Security profile.
func (p *Program) pod(env []corev1.EnvVar, mode corev1.PersistentVolumeMode) *corev1.Pod {
	w := p.spec.Worker.DeepCopy()
	block := mode == corev1.PersistentVolumeBlock
	security := securityContext(w.SecurityContext, block)

	c := corev1.Container{
		Name:                     v1alpha1.WorkerContainer,
		Image:                    w.Image,
		ImagePullPolicy:          w.ImagePullPolicy,
		Command:                  w.Command,
		Args:                     w.Args,
		Resources:                resources(w.Resources),
		SecurityContext:          security,
		VolumeMounts:             w.VolumeMounts,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	target := v1alpha1.TargetPath
	if block {
		target = v1alpha1.TargetDevice
		c.VolumeDevices = []corev1.VolumeDevice{{Name: v1alpha1.TargetVolume, DevicePath: target}}
	} else {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v1alpha1.TargetVolume, MountPath: target})
	}
	// Ours come first: $(SLUICE_TARGET) in the template's values refers to what
	// stands before.
	c.Env = []corev1.EnvVar{
		{Name: v1alpha1.EnvTarget, Value: target},
		{Name: v1alpha1.EnvVolumeMode, Value: string(mode)},
	}
	if len(w.Files) > 0 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v1alpha1.FilesVolume, MountPath: v1alpha1.FilesPath, ReadOnly: true})
		c.Env = append(c.Env, corev1.EnvVar{Name: v1alpha1.EnvFiles, Value: v1alpha1.FilesPath})
	}
	c.Env = append(c.Env, env...)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: w.Labels, Annotations: w.Annotations},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{c},
			Volumes:                       w.Volumes,
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            w.ServiceAccountName,
			AutomountServiceAccountToken:  ptr.To(w.AutomountServiceAccountToken),
			EnableServiceLinks:            ptr.To(false),
			ImagePullSecrets:              w.ImagePullSecrets,
			NodeSelector:                  w.NodeSelector,
			Tolerations:                   w.Tolerations,
			PriorityClassName:             w.PriorityClassName,
			RuntimeClassName:              w.RuntimeClassName,
			ActiveDeadlineSeconds:         p.spec.DeadlineSeconds,
			TerminationGracePeriodSeconds: ptr.To(terminationGrace),
			SecurityContext: &corev1.PodSecurityContext{
				FSGroup:             fsGroup(security),
				FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
}

// securityContext fills in what the template leaves out. A block device is
// root:root 0600 whatever fsGroup says, so its worker is root by default, with
// no capability.
func securityContext(s *corev1.SecurityContext, block bool) *corev1.SecurityContext {
	if s == nil {
		s = &corev1.SecurityContext{}
	}
	user := workerID
	if block && !ptr.Deref(s.RunAsNonRoot, false) {
		user = 0
	}
	if s.RunAsUser == nil {
		s.RunAsUser = ptr.To(user)
	}
	if s.RunAsGroup == nil {
		s.RunAsGroup = ptr.To(user)
	}
	if s.RunAsNonRoot == nil {
		s.RunAsNonRoot = ptr.To(*s.RunAsUser != 0)
	}
	if s.AllowPrivilegeEscalation == nil {
		s.AllowPrivilegeEscalation = ptr.To(false)
	}
	if s.Capabilities == nil {
		s.Capabilities = &corev1.Capabilities{}
	}
	if s.Capabilities.Drop == nil {
		s.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
	if s.SeccompProfile == nil {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return s
}

// fsGroup is the worker's own group, so that what it writes belongs to it.
func fsGroup(s *corev1.SecurityContext) *int64 {
	if s.RunAsGroup != nil && *s.RunAsGroup != 0 {
		return ptr.To(*s.RunAsGroup)
	}
	return ptr.To(workerID)
}

// resources gives a worker requests and limits for CPU and memory, as quotas
// may demand. A default yields to what the template says: a default request is
// never above the limit, a default limit never below the request.
func resources(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	for _, d := range []struct {
		name           corev1.ResourceName
		request, limit string
	}{
		{corev1.ResourceCPU, "10m", "1"},
		{corev1.ResourceMemory, "32Mi", "256Mi"},
	} {
		limit, limited := r.Limits[d.name]
		request, requested := r.Requests[d.name]
		if !requested {
			request = resource.MustParse(d.request)
			if limited && request.Cmp(limit) > 0 {
				request = limit
			}
			r.Requests[d.name] = request
		}
		if !limited {
			limit = resource.MustParse(d.limit)
			if limit.Cmp(request) < 0 {
				limit = request
			}
			r.Limits[d.name] = limit
		}
	}
	return r
}
