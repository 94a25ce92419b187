package observe

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// ReferenceGrantKind is the Gateway API's kind by which the owner of a
// namespace lets others refer to objects in it (KEP-3294). Its definition may
// be missing from a cluster; nothing is granted then.
var ReferenceGrantKind = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}

// grant adds to s whether a grant in the source's namespace lets claims of a
// namespace refer to a source, or why there can be none; loading says that it is
// not known yet.
func (ob *Observer) grant(ref SourceRef, claimNamespace string, s *populate.Source) (loading bool) {
	s.Granted, s.Ungrantable = false, ""
	grants, state := ob.Kinds.List(ReferenceGrantKind)
	switch state.Status {
	case kinds.Starting:
		return true
	case kinds.NotReadable:
		s.Ungrantable = state.Detail
		return false
	case kinds.Readable, kinds.Unwatched:
	}
	for _, g := range grants {
		if u, ok := g.(*unstructured.Unstructured); ok && u.GetNamespace() == ref.Namespace && covers(u, ref, claimNamespace) {
			s.Granted = true
			break
		}
	}
	return false
}

// covers says whether one grant covers a reference.
func covers(grant *unstructured.Unstructured, ref SourceRef, claimNamespace string) bool {
	if grant.GetDeletionTimestamp() != nil {
		return false
	}
	from := entries(grant, "from")
	to := entries(grant, "to")
	return slices.ContainsFunc(from, func(f map[string]any) bool {
		return text(f, "group") == "" && text(f, "kind") == "PersistentVolumeClaim" && text(f, "namespace") == claimNamespace
	}) && slices.ContainsFunc(to, func(t map[string]any) bool {
		name := text(t, "name")
		return text(t, "group") == ref.Kind.Group && text(t, "kind") == ref.Kind.Kind && (name == "" || name == ref.Name)
	})
}

func entries(grant *unstructured.Unstructured, field string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(grant.Object, "spec", field) // absent or malformed grants nothing
	var out []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
