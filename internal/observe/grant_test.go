package observe

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestGrantCovers(t *testing.T) {
	ref := SourceRef{Kind: schema.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}, Namespace: "data", Name: "source"}
	from := func(group, kind, namespace string) map[string]any {
		return map[string]any{"group": group, "kind": kind, "namespace": namespace}
	}
	to := func(group, kind, name string) map[string]any {
		m := map[string]any{"group": group, "kind": kind}
		if name != "" {
			m["name"] = name
		}
		return m
	}
	claims := from("", "PersistentVolumeClaim", "app")
	cases := map[string]struct {
		from, to map[string]any
		want     bool
	}{
		"the kind":               {claims, to("hello.k8s.io", "Hello", ""), true},
		"this very object":       {claims, to("hello.k8s.io", "Hello", "source"), true},
		"another object":         {claims, to("hello.k8s.io", "Hello", "other"), false},
		"another kind":           {claims, to("hello.k8s.io", "Other", ""), false},
		"another group":          {claims, to("", "Hello", ""), false},
		"to another namespace":   {from("", "PersistentVolumeClaim", "else"), to("hello.k8s.io", "Hello", ""), false},
		"to other kinds":         {from("apps", "Deployment", "app"), to("hello.k8s.io", "Hello", ""), false},
		"without a word on whom": {map[string]any{}, to("hello.k8s.io", "Hello", ""), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			grant := &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"from": []any{tc.from}, "to": []any{tc.to}},
			}}
			if got := covers(grant, ref, "app"); got != tc.want {
				t.Errorf("granted is %t, want %t", got, tc.want)
			}
		})
	}
	if covers(&unstructured.Unstructured{Object: map[string]any{"spec": "nonsense"}}, ref, "app") {
		t.Error("a malformed grant grants")
	}
}
