package template

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestPodDefaults(t *testing.T) {
	pod := mustCompile(t, helloSpec()).Render(Input{Claim: helloClaim(), Source: helloSource("a", "b")}).Pod
	want := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		SecurityContext: &corev1.PodSecurityContext{
			FSGroup:             ptr.To[int64](65532),
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:    "worker",
			Image:   "busybox:latest",
			Command: helloSpec().Worker.Command,
			Env: []corev1.EnvVar{
				{Name: "SLUICE_TARGET", Value: "/sluice/target"},
				{Name: "SLUICE_VOLUME_MODE", Value: "Filesystem"},
				{Name: "NAME", Value: "a"},
				{Name: "CONTENTS", Value: "b"},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), RunAsNonRoot: ptr.To(true),
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			VolumeMounts:             []corev1.VolumeMount{{Name: "sluice-target", MountPath: "/sluice/target"}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	if diff := cmp.Diff(want, pod.Spec); diff != "" {
		t.Errorf("worker: -want, +got:\n%s", diff)
	}
}

func TestPodSecurity(t *testing.T) {
	type ids struct {
		User, Group, FSGroup int64
		NonRoot              bool
	}
	cases := map[string]struct {
		reason string
		given  *corev1.SecurityContext
		mode   corev1.PersistentVolumeMode
		want   ids
	}{
		"Default":      {"A worker is nobody in particular.", nil, corev1.PersistentVolumeFilesystem, ids{65532, 65532, 65532, true}},
		"Block":        {"A block device is root's.", nil, corev1.PersistentVolumeBlock, ids{0, 0, 65532, false}},
		"BlockNonRoot": {"Unless the template forbids root.", &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, corev1.PersistentVolumeBlock, ids{65532, 65532, 65532, true}},
		"BlockUser":    {"Or names a user.", &corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}, corev1.PersistentVolumeBlock, ids{7, 0, 65532, true}},
		"User":         {"The user and group of the template stay, and the volume gets the group.", &corev1.SecurityContext{RunAsUser: ptr.To[int64](7), RunAsGroup: ptr.To[int64](8)}, "", ids{7, 8, 8, true}},
		"Root":         {"Root is allowed where the template says so.", &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}, "", ids{0, 65532, 65532, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := helloSpec(func(s *v1alpha1.PopulatorSpec) { s.Worker.SecurityContext = tc.given })
			pod := mustCompile(t, spec).Render(Input{Claim: helloClaim(), Source: helloSource("a", "b"), Volume: Volume{Mode: tc.mode}}).Pod
			c := pod.Spec.Containers[0]
			got := ids{*c.SecurityContext.RunAsUser, *c.SecurityContext.RunAsGroup, *pod.Spec.SecurityContext.FSGroup, *c.SecurityContext.RunAsNonRoot}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop); diff != "" {
				t.Errorf("dropped capabilities: -want, +got:\n%s", diff)
			}
			devices := []corev1.VolumeDevice(nil)
			if tc.mode == corev1.PersistentVolumeBlock {
				devices = []corev1.VolumeDevice{{Name: "sluice-target", DevicePath: "/dev/sluice-target"}}
			}
			if diff := cmp.Diff(devices, c.VolumeDevices); diff != "" {
				t.Errorf("devices: -want, +got:\n%s", diff)
			}
		})
	}
}

func TestResources(t *testing.T) {
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	cases := map[string]struct {
		reason      string
		given, want corev1.ResourceRequirements
	}{
		"Kept":      {"What the template says stays.", corev1.ResourceRequirements{Requests: list("1Gi"), Limits: list("2Gi")}, corev1.ResourceRequirements{Requests: list("1Gi"), Limits: list("2Gi")}},
		"LowLimit":  {"A default request is never above the limit.", corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}, Limits: list("16Mi")}, corev1.ResourceRequirements{Requests: list("16Mi"), Limits: list("16Mi")}},
		"HighUsage": {"A default limit is never below the request.", corev1.ResourceRequirements{Requests: list("1Gi")}, corev1.ResourceRequirements{Requests: list("1Gi"), Limits: list("1Gi")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, resources(tc.given)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRenderLeavesProgramAlone holds that a Program can be used by many at
// once: what a caller does to one Pod is not seen in the next.
func TestRenderLeavesProgramAlone(t *testing.T) {
	p := mustCompile(t, helloSpec(func(s *v1alpha1.PopulatorSpec) { s.Worker.Labels = map[string]string{"a": "b"} }))
	in := Input{Claim: helloClaim(), Source: helloSource("a", "b")}
	first := p.Render(in).Pod
	first.Labels["a"] = "changed"
	first.Spec.Containers[0].Command[0] = "changed"
	*first.Spec.TerminationGracePeriodSeconds = 99
	second := p.Render(in).Pod
	if second.Labels["a"] != "b" || second.Spec.Containers[0].Command[0] != "sh" || *second.Spec.TerminationGracePeriodSeconds != 5 {
		t.Errorf("a change to one Pod shows in the next: %v", second)
	}
}
