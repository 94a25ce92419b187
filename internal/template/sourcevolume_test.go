package template

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// withSourceVolumes gives the template source volumes.
func withSourceVolumes(volumes ...v1alpha1.SourceVolume) func(*v1alpha1.PopulatorSpec) {
	return func(s *v1alpha1.PopulatorSpec) { s.Worker.SourceVolumes = volumes }
}

func credentials(change ...func(*v1alpha1.SourceVolume)) v1alpha1.SourceVolume {
	v := v1alpha1.SourceVolume{Name: "credentials", MountPath: "/sources/credentials", Secret: "source.spec.?secretRef.?name"}
	for _, c := range change {
		c(&v)
	}
	return v
}

func TestSourceVolumesRefused(t *testing.T) {
	with := func(change func(*v1alpha1.SourceVolume)) func(*v1alpha1.PopulatorSpec) {
		return withSourceVolumes(credentials(change))
	}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"fileName": {Type: "string"}, "fileContents": {Type: "string"}, "size": {Type: "integer"},
			"secretRef": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string"}}},
		}},
	}}
	cases := map[string]struct {
		change     func(*v1alpha1.PopulatorSpec)
		path, says string
	}{
		"Neither":  {with(func(v *v1alpha1.SourceVolume) { v.Secret = "" }), "spec.worker.sourceVolumes[0]", "exactly one"},
		"Both":     {with(func(v *v1alpha1.SourceVolume) { v.ConfigMap = "'a'" }), "spec.worker.sourceVolumes[0]", "exactly one"},
		"Syntax":   {with(func(v *v1alpha1.SourceVolume) { v.Secret = "source." }), "spec.worker.sourceVolumes[0].secret", "Syntax error"},
		"Template": {with(func(v *v1alpha1.SourceVolume) { v.Secret = "${source.spec.fileName}" }), "spec.worker.sourceVolumes[0].secret", "Syntax error"},
		"Number":   {with(func(v *v1alpha1.SourceVolume) { v.Secret = "source.spec.size" }), "spec.worker.sourceVolumes[0].secret", "yields int, want string or optional string"},
		"OptionalNumber": {
			with(func(v *v1alpha1.SourceVolume) { v.Secret = "source.spec.?size" }), "spec.worker.sourceVolumes[0].secret", "yields optional_type(int)",
		},
		"UnknownField": {with(func(v *v1alpha1.SourceVolume) { v.Secret = "source.spec.secret" }), "spec.worker.sourceVolumes[0].secret", "undefined field"},
		"Claim":        {with(func(v *v1alpha1.SourceVolume) { v.Secret = "claim.name" }), "spec.worker.sourceVolumes[0].secret", "undeclared reference to 'claim'"},
		"ConfigMap": {
			with(func(v *v1alpha1.SourceVolume) { v.Secret, v.ConfigMap = "", "1" }), "spec.worker.sourceVolumes[0].configMap", "yields int",
		},
		"OptionalWhen": {with(func(v *v1alpha1.SourceVolume) { v.OptionalWhen = "'yes'" }), "spec.worker.sourceVolumes[0].optionalWhen", "yields string, want bool"},
		"OurName":      {with(func(v *v1alpha1.SourceVolume) { v.Name = "sluice-x" }), "spec.worker.sourceVolumes[0].name", "belong to Sluice"},
		"BadName":      {with(func(v *v1alpha1.SourceVolume) { v.Name = "A b" }), "spec.worker.sourceVolumes[0].name", "lower case"},
		"NameTwice":    {withSourceVolumes(credentials(), credentials(func(v *v1alpha1.SourceVolume) { v.MountPath = "/b" })), "spec.worker.sourceVolumes[1].name", "Duplicate"},
		"PathTwice":    {withSourceVolumes(credentials(), credentials(func(v *v1alpha1.SourceVolume) { v.Name = "b" })), "spec.worker.sourceVolumes[1].mountPath", "Duplicate"},
		"NameOfVolume": {func(s *v1alpha1.PopulatorSpec) {
			s.Worker.Volumes = []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			s.Worker.SourceVolumes = []v1alpha1.SourceVolume{credentials()}
		}, "spec.worker.sourceVolumes[0].name", "Duplicate"},
		"OverTarget":  {with(func(v *v1alpha1.SourceVolume) { v.MountPath = "/sluice/target" }), "spec.worker.sourceVolumes[0].mountPath", "/sluice"},
		"OverRoot":    {with(func(v *v1alpha1.SourceVolume) { v.MountPath = "/a/.." }), "spec.worker.sourceVolumes[0].mountPath", "/sluice"},
		"Relative":    {with(func(v *v1alpha1.SourceVolume) { v.MountPath = "a" }), "spec.worker.sourceVolumes[0].mountPath", "absolute"},
		"PathWithCEL": {with(func(v *v1alpha1.SourceVolume) { v.MountPath = "/${source.a}" }), "spec.worker.sourceVolumes[0].mountPath", "only"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := Compile(helloSpec(tc.change), schema)
			if len(errs) != 1 || errs[0].Field != tc.path || !strings.Contains(errs[0].Error(), tc.says) {
				t.Errorf("Compile = %v, want one error at %s that says %q", errs, tc.path, tc.says)
			}
		})
	}
}

func TestSourceVolumes(t *testing.T) {
	config := v1alpha1.SourceVolume{
		Name: "config", MountPath: "/sources/config", ConfigMap: "source.spec.?configMap.?name", OptionalWhen: "source.spec.?onMissing.orValue('Fail') == 'Continue'",
	}
	cases := map[string]struct {
		reason string
		spec   map[string]any
		want   []NamedObject
		// volumes and mounts of the Pod.
		volumes []corev1.Volume
		fails   string
	}{
		"Nothing": {reason: "a source that names nothing gets no volume", spec: map[string]any{}},
		"Empty":   {reason: "nor one that names the empty string", spec: map[string]any{"secretRef": map[string]any{"name": ""}}},
		"Secret": {
			reason: "a Secret is mounted by its name, for the worker's group", spec: map[string]any{"secretRef": map[string]any{"name": "token.v1"}},
			want: []NamedObject{{KindSecret, "token.v1"}},
			volumes: []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "token.v1", DefaultMode: ptr.To[int32](0o440), Optional: ptr.To(false)},
			}}},
		},
		"Optional": {
			reason: "a ConfigMap may be missing when the source says so", spec: map[string]any{"configMap": map[string]any{"name": "c"}, "onMissing": "Continue"},
			want: []NamedObject{{KindConfigMap, "c"}},
			volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: ptr.To[int32](0o440), Optional: ptr.To(true),
			}}}},
		},
		"Path":    {reason: "a name is a name", spec: map[string]any{"secretRef": map[string]any{"name": "../token"}}, fails: v1alpha1.ReasonInvalidSource},
		"Newline": {reason: "a name is a name", spec: map[string]any{"secretRef": map[string]any{"name": "token\n"}}, fails: v1alpha1.ReasonInvalidSource},
		"Long":    {reason: "a name has a length", spec: map[string]any{"secretRef": map[string]any{"name": strings.Repeat("a", 254)}}, fails: v1alpha1.ReasonInvalidSource},
		"Number":  {reason: "without a schema types are found out late", spec: map[string]any{"secretRef": map[string]any{"name": int64(1)}}, fails: v1alpha1.ReasonTemplateFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, helloSpec(withSourceVolumes(credentials(), config)))
			source := helloSource("f", "c")
			spec, ok := source["spec"].(map[string]any)
			if !ok {
				t.Fatal("the source has no spec")
			}
			maps.Copy(spec, tc.spec)
			r := p.Render(Input{Source: source, Claim: helloClaim()})
			names, err := p.Names(source)
			if tc.fails != "" {
				var invalid *InvalidNameError
				if r.Reason != tc.fails || r.Pod != nil || err == nil || errors.As(err, &invalid) != (tc.fails == v1alpha1.ReasonInvalidSource) {
					t.Errorf("%s: Render = %s %q, Names = %v; want %s", tc.reason, r.Reason, r.Message, err, tc.fails)
				}
				return
			}
			if r.Reason != "" || err != nil {
				t.Fatalf("%s: Render = %s %q, Names = %v", tc.reason, r.Reason, r.Message, err)
			}
			if diff := cmp.Diff(tc.want, r.Objects); diff != "" {
				t.Errorf("%s: objects: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(r.Objects, names); diff != "" {
				t.Errorf("%s: Names: -rendered +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.volumes, r.Pod.Spec.Volumes); diff != "" {
				t.Errorf("%s: volumes: -want +got\n%s", tc.reason, diff)
			}
			mounts := map[string]corev1.VolumeMount{}
			for _, m := range r.Pod.Spec.Containers[0].VolumeMounts {
				mounts[m.Name] = m
			}
			for _, v := range tc.volumes {
				if m := mounts[v.Name]; m.MountPath != "/sources/"+v.Name || !m.ReadOnly {
					t.Errorf("%s: volume %q is mounted as %+v, want read-only below /sources", tc.reason, v.Name, m)
				}
			}
			if len(mounts) != len(tc.volumes)+1 {
				t.Errorf("%s: mounts %v, want the target's and those of %d volumes", tc.reason, mounts, len(tc.volumes))
			}
		})
	}
}
