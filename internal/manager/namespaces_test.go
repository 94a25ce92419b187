package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestNamespacesOut(t *testing.T) {
	n := &Namespaces{Own: "sluice-system", Excluded: []string{"named"}, Cache: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "named"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{"sluice.dev/ignore": "true"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "otherwise", Labels: map[string]string{"sluice.dev/ignore": "false"}}},
	).Build()}
	cases := map[string]struct {
		reason string
		want   bool
	}{
		"default":       {"Sluice works wherever nobody says otherwise.", false},
		"otherwise":     {"Only the value true keeps it out.", false},
		"labelled":      {"A label keeps it out.", true},
		"named":         {"So does the operator.", true},
		"kube-system":   {"The cluster's own namespace is none of its business.", true},
		"sluice-system": {"Nor is its own.", true},
		"gone":          {"In a namespace that is gone there is nothing to do.", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := n.Out(t.Context(), name)
			if err != nil || got != tc.want {
				t.Errorf("%s\nOut(%q) = %t, %v, want %t", tc.reason, name, got, err, tc.want)
			}
		})
	}
}
