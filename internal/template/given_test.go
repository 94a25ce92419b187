package template

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// expanded is what the kubelet makes of a value: $$ becomes $, and a reference
// that nothing defines stays.
func expanded(s string) string { return strings.ReplaceAll(s, "$$", "$") }

func TestGiven(t *testing.T) {
	values := []string{
		"", "plain", "$", "$$", "$(TOKEN)", "$$(TOKEN)", "${source.name}", "$${source.name}", "$$${x}", "${", "a $ b ${c} $(d) $$", "}{$",
	}
	for _, value := range values {
		t.Run(value, func(t *testing.T) {
			p, errs := Given(v1alpha1.SourceKind{}, &v1alpha1.WorkerTemplate{
				Image: "example.com/w", Env: []corev1.EnvVar{{Name: "V", Value: value}},
				Args: []string{value}, Files: []v1alpha1.File{{Name: "f", Content: value}},
			})
			if len(errs) > 0 {
				t.Fatalf("got %v, want a worker", errs)
			}
			r := p.Render(Input{})
			if r.Pod == nil {
				t.Fatalf("got %s: %s, want a Pod", r.Reason, r.Message)
			}
			c := &r.Pod.Spec.Containers[0]
			var env string
			for _, e := range c.Env {
				if e.Name == "V" {
					env = e.Value
				}
			}
			if got := expanded(env); got != value {
				t.Errorf("env: the container sees %q, want %q", got, value)
			}
			if strings.Contains(strings.ReplaceAll(env, "$$", ""), "$(") {
				t.Errorf("env %q still refers to a variable", env)
			}
			if got := expanded(c.Args[0]); got != value {
				t.Errorf("args: the container sees %q, want %q", got, value)
			}
			if got := string(r.Files["f"]); got != value {
				t.Errorf("file: got %q, want %q", got, value)
			}
		})
	}
}

func TestGivenRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		worker v1alpha1.WorkerTemplate
		path   string
	}{
		"HostPath": {"A plugin reaches no further than a template", v1alpha1.WorkerTemplate{Image: "i", Volumes: []corev1.Volume{{
			Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		}}}, "worker.volumes[0]"},
		"SourceVolumes": {"CEL stands in templates alone", v1alpha1.WorkerTemplate{Image: "i", SourceVolumes: []v1alpha1.SourceVolume{{Name: "s"}}}, "worker.sourceVolumes"},
		"NoImage":       {"A worker has an image", v1alpha1.WorkerTemplate{}, "worker.image"},
		"Expression":    {"An expression in a name is refused as everywhere", v1alpha1.WorkerTemplate{Image: "${x}"}, "worker.image"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := Given(v1alpha1.SourceKind{}, &tc.worker)
			if len(errs) == 0 || !strings.HasPrefix(errs[0].Field, tc.path) {
				t.Errorf("%s: got %v, want an error at %s", tc.reason, errs, tc.path)
			}
		})
	}
}
