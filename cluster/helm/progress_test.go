package helm_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestLogsAreReadOnlyWhereAskedFor shows that the right to read the logs of all
// Pods comes with the option that needs it, and with nothing else.
func TestLogsAreReadOnlyWhereAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"Default": {values: map[string]any{}},
		"Asked":   {values: map[string]any{"progress": map[string]any{"fromLogs": true}}, want: true},
		// As with --reuse-values after a release that did not know the option.
		"Unknown": {values: map[string]any{"progress": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, tc.values)
			args := object[*appsv1.Deployment](t, objects, "Deployment/sluice-manager").Spec.Template.Spec.Containers[0].Args
			if got := slices.Contains(args, "--progress-from-logs"); got != tc.want {
				t.Errorf("the manager reads logs: %t, want %t", got, tc.want)
			}
			if got := mayReadLogs(objects); got != tc.want {
				t.Errorf("a role may read logs: %t, want %t", got, tc.want)
			}
		})
	}
}

func mayReadLogs(objects map[string]runtime.Object) bool {
	for key, o := range objects {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok || !strings.HasPrefix(key, "ClusterRole/") {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "pods/log") {
				return true
			}
		}
	}
	return false
}
