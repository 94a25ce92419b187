// Package registration finds out who fills claims of a source kind: a Populator
// of ours, or another controller that registered the kind with a
// VolumePopulator.
package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/kinds"
)

// Kind is the Kubernetes project's registration kind. Its definition may be
// missing from a cluster.
var Kind = schema.GroupKind{Group: v1beta1.GroupName, Kind: "VolumePopulator"}

// State is whether somebody fills claims of a kind.
type State int

// The states of a kind.
const (
	// Unknown: not everything was read yet, or a Populator was not judged yet.
	Unknown State = iota
	// Nobody registered the kind.
	Nobody
	// NotAccepted: a Populator names the kind and is not accepted.
	NotAccepted
	// Served: a Populator that is accepted names the kind.
	Served
	// Foreign: another controller registered the kind.
	Foreign
)

// Registration is who registered a kind.
type Registration struct {
	Kind  schema.GroupKind
	State State
	// Name is that of the Populator or, with Foreign, of the VolumePopulator.
	Name string
	// Reason is why the Populator is not accepted.
	Reason string
}

// Watched are the kinds that may be missing; see package kinds.
type Watched interface {
	List(kind schema.GroupKind) ([]metav1.Object, kinds.State)
}

// Finder finds registrations. It reads caches only.
type Finder struct {
	Cache client.Reader
	Kinds Watched
}

// Find says who registered a kind.
func (f *Finder) Find(ctx context.Context, kind schema.GroupKind) (Registration, error) {
	var list v1alpha1.PopulatorList
	if err := f.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return Registration{}, fmt.Errorf("list populators: %w", err)
	}
	populators := Of(list.Items, kind)
	foreign, state := Others(f.Kinds, kind)
	r := Registration{Kind: kind}
	for _, p := range populators {
		if Accepted(p) {
			r.State, r.Name = Served, p.Name
			return r, nil
		}
	}
	switch {
	case state.Status == kinds.Starting || state.Status == kinds.Unwatched:
		r.State = Unknown
	case len(foreign) > 0:
		r.State, r.Name = Foreign, foreign[0]
	case len(populators) == 0:
		r.State = Nobody
	default:
		oldest := populators[0]
		c := meta.FindStatusCondition(oldest.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.ObservedGeneration != oldest.Generation {
			r.State = Unknown
			break
		}
		r.State, r.Name, r.Reason = NotAccepted, oldest.Name, c.Reason
	}
	return r, nil
}

// Problem says in one sentence why a claim of the kind stays Pending; empty
// when somebody fills it or that is not known yet.
func (r Registration) Problem() string {
	switch r.State {
	case Nobody:
		return fmt.Sprintf("Nobody fills claims with a data source of kind %s: the claim stays Pending until a Populator or VolumePopulator registers that kind", r.Kind)
	case NotAccepted:
		return fmt.Sprintf("Populator %q for data sources of kind %s is not accepted (%s): the claim stays Pending until the Populator is corrected", r.Name, r.Kind, r.Reason)
	case Unknown, Served, Foreign:
	}
	return ""
}

// Of returns the Populators of a kind that are not being deleted, the oldest
// first. The oldest serves.
func Of(all []v1alpha1.Populator, kind schema.GroupKind) []*v1alpha1.Populator {
	var out []*v1alpha1.Populator
	for i := range all {
		if p := &all[i]; KindOf(p) == kind && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Populator) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// Others returns the names of the VolumePopulators of a kind that were not made
// for a Populator, in order, and whether they could be read.
func Others(from Watched, kind schema.GroupKind) ([]string, kinds.State) {
	all, state := from.List(Kind)
	var names []string
	for _, o := range all {
		if u, ok := o.(*unstructured.Unstructured); ok && !Ours(u) && Registers(u) == kind {
			names = append(names, u.GetName())
		}
	}
	slices.Sort(names)
	return names, state
}

// Ours says that a VolumePopulator was made for a Populator.
func Ours(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(r.APIVersion, "/")
		return r.Kind == "Populator" && group == v1alpha1.GroupName
	})
}

// Accepted says that a Populator is served in the generation that is stored.
func Accepted(p *v1alpha1.Populator) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation && p.DeletionTimestamp == nil
}

// KindOf is the source kind of a Populator.
func KindOf(p *v1alpha1.Populator) schema.GroupKind {
	return schema.GroupKind{Group: p.Spec.SourceKind.Group, Kind: p.Spec.SourceKind.Kind}
}

// Registers is the source kind of a VolumePopulator.
func Registers(u *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(u.Object, "sourceKind", "group")
	kind, _, _ := unstructured.NestedString(u.Object, "sourceKind", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}
