package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/cli"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/registration"
)

// eventsOfAttempts is of how many attempts, counted from the last, the events
// of temporaries are asked for.
const eventsOfAttempts = 3

// Facts are all that is known about one claim. Nil and empty mean absent, or
// not readable if a line of Missing says so.
type Facts struct {
	Now        time.Time
	Claim      *corev1.PersistentVolumeClaim
	Population *v1alpha1.Population
	// Populator is the one that serves the kind of the source, or would.
	Populator *v1alpha1.Populator
	// Elsewhere is the VolumePopulator by which another controller has
	// registered the kind, where no Populator is for it.
	Elsewhere string
	// NoSluice says that the cluster does not know Sluice's kinds.
	NoSluice bool
	// Ignored says that the claim's namespace is labelled to be left alone.
	Ignored bool
	Source  Source
	Volume  *corev1.PersistentVolume
	Primes  []corev1.PersistentVolumeClaim
	Workers []corev1.Pod
	Events  []corev1.Event
	// Missing are the rights that would have told more.
	Missing []string
}

// Source is what was found of the claim's source.
type Source struct {
	// Namespace and Readable: where it was looked for, and whether the looking
	// went well.
	Namespace  string
	Readable   bool
	Found      bool
	UID        types.UID
	Generation int64
}

// gatherer reads Facts. What may not be read is noted, not an error.
type gatherer struct {
	from client.Client
	f    Facts
}

// Gather reads all about one claim.
func Gather(ctx context.Context, from client.Client, claim types.NamespacedName, now time.Time) (Facts, error) {
	g := gatherer{from: from, f: Facts{Now: now}}
	c := &corev1.PersistentVolumeClaim{}
	if err := from.Get(ctx, claim, c); err != nil {
		if right, ok := cli.Missing(err, "get", "persistentvolumeclaims", claim.Namespace); ok {
			return Facts{}, fmt.Errorf("read claim %q: you lack the right to %s: %w", claim, right, err)
		}
		return Facts{}, fmt.Errorf("read claim %q: %w", claim, err)
	}
	g.f.Claim = c
	for _, read := range []func(context.Context) error{
		g.namespace, g.population, g.populator, g.source, g.volume, g.temporaries, g.events,
	} {
		if err := read(ctx); err != nil {
			return Facts{}, err
		}
	}
	return g.f, nil
}

// note makes an error that is no obstacle to the rest of the story a line of
// Missing, or nothing.
func (g *gatherer) note(err error, verb, resource, namespace string) error {
	if err == nil || cli.Absent(err) {
		return nil
	}
	if right, ok := cli.Missing(err, verb, resource, namespace); ok {
		if !slices.Contains(g.f.Missing, right) {
			g.f.Missing = append(g.f.Missing, right)
		}
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, resource, err)
}

func (g *gatherer) namespace(ctx context.Context) error {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := g.from.Get(ctx, client.ObjectKey{Name: g.f.Claim.Namespace}, ns)
	g.f.Ignored = err == nil && ns.Labels[v1alpha1.LabelIgnore] == "true"
	return g.note(err, "get", "namespaces", "")
}

func (g *gatherer) population(ctx context.Context) error {
	p := &v1alpha1.Population{}
	err := g.from.Get(ctx, client.ObjectKeyFromObject(g.f.Claim), p)
	if err == nil {
		g.f.Population = p
	}
	return g.note(err, "get", "populations.sluice.dev", g.f.Claim.Namespace)
}

// populator finds the Populator of the source's kind: the accepted one, else
// the oldest, as the manager would.
func (g *gatherer) populator(ctx context.Context) error {
	list := &v1alpha1.PopulatorList{}
	err := g.from.List(ctx, list)
	g.f.NoSluice = err != nil && cli.Absent(err)
	ref := g.f.Claim.Spec.DataSourceRef
	if err != nil || ref == nil {
		return g.note(err, "list", "populators.sluice.dev", "")
	}
	candidates := registration.Of(list.Items, kindOf(ref))
	if len(candidates) == 0 {
		return g.registered(ctx, kindOf(ref))
	}
	g.f.Populator = candidates[0]
	if i := slices.IndexFunc(candidates, registration.Accepted); i > 0 {
		g.f.Populator = candidates[i]
	}
	return nil
}

// registered looks whether another controller has registered a kind that no
// Populator is for.
func (g *gatherer) registered(ctx context.Context, kind schema.GroupKind) error {
	list := &v1beta1.VolumePopulatorList{}
	if err := g.from.List(ctx, list); err != nil {
		return g.note(err, "list", "volumepopulators.populator.storage.k8s.io", "")
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.SourceKind.Group == kind.Group && p.SourceKind.Kind == kind.Kind && !registration.Ours(p) {
			g.f.Elsewhere = p.Name
		}
	}
	return nil
}

// source looks whether there is a source. Nothing of its content is read: it
// is told by the manager, if at all.
func (g *gatherer) source(ctx context.Context) error {
	ref := g.f.Claim.Spec.DataSourceRef
	if ref == nil {
		return nil
	}
	s := &g.f.Source
	s.Namespace = sourceNamespace(g.f.Claim)
	kind := kindOf(ref)
	mapping, err := g.from.RESTMapper().RESTMapping(kind)
	if err != nil {
		// Without the kind there is no source.
		s.Readable = cli.Absent(err)
		return g.note(err, "discover", "kind "+kind.String(), "")
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	err = g.from.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: ref.Name}, o)
	s.Found, s.Readable = err == nil, err == nil || cli.Absent(err)
	s.UID, s.Generation = o.GetUID(), o.GetGeneration()
	return g.note(err, "get", mapping.Resource.GroupResource().String(), s.Namespace)
}

func kindOf(ref *corev1.TypedObjectReference) schema.GroupKind {
	return schema.GroupKind{Group: ptr.Deref(ref.APIGroup, ""), Kind: ref.Kind}
}

// sourceNamespace is where a claim's source is.
func sourceNamespace(c *corev1.PersistentVolumeClaim) string {
	if ns := c.Annotations[v1alpha1.AnnotationSourceNamespace]; ns != "" {
		return ns
	}
	if ref := c.Spec.DataSourceRef; ref != nil && ptr.Deref(ref.Namespace, "") != "" {
		return *ref.Namespace
	}
	return c.Namespace
}

func (g *gatherer) volume(ctx context.Context) error {
	name := g.f.Claim.Spec.VolumeName
	if p := g.f.Population; name == "" && p != nil && p.Spec.ClaimUID == g.f.Claim.UID {
		name = p.Status.VolumeName
	}
	if name == "" {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	err := g.from.Get(ctx, client.ObjectKey{Name: name}, pv)
	if err == nil {
		g.f.Volume = pv
	}
	return g.note(err, "get", "persistentvolumes", "")
}

func (g *gatherer) temporaries(ctx context.Context) error {
	of := client.MatchingLabels{v1alpha1.LabelClaimUID: string(g.f.Claim.UID)}
	for _, ns := range g.namespaces() {
		primes := &corev1.PersistentVolumeClaimList{}
		if err := g.note(g.from.List(ctx, primes, of, client.InNamespace(ns)), "list", "persistentvolumeclaims", ns); err != nil {
			return err
		}
		workers := &corev1.PodList{}
		if err := g.note(g.from.List(ctx, workers, of, client.InNamespace(ns)), "list", "pods", ns); err != nil {
			return err
		}
		g.f.Primes = append(g.f.Primes, primes.Items...)
		g.f.Workers = append(g.f.Workers, workers.Items...)
	}
	return nil
}

// namespaces are the claim's and, where it is another, the one that its
// temporaries live in.
func (g *gatherer) namespaces() []string {
	own := g.f.Claim.Namespace
	if p := g.f.Population; p != nil && p.Spec.ClaimUID == g.f.Claim.UID && p.Spec.Namespace != "" && p.Spec.Namespace != own {
		return []string{own, p.Spec.Namespace}
	}
	return []string{own}
}

// events reads those about the claim and about the temporaries of the last
// attempts, also of temporaries that are gone.
func (g *gatherer) events(ctx context.Context) error {
	names := []string{g.f.Claim.Name}
	if p := g.f.Population; p != nil && p.Spec.ClaimUID == g.f.Claim.UID {
		for n := p.Spec.Attempt; n > 0 && n > p.Spec.Attempt-eventsOfAttempts; n-- {
			names = append(names, populate.TemporaryName(g.f.Claim.UID, n), populate.ScoutName(g.f.Claim.UID, n))
		}
	}
	for i, ns := range g.namespaces() {
		for _, name := range names[min(i, 1):] { // the claim itself is in the first
			list := &corev1.EventList{}
			err := g.from.List(ctx, list, client.InNamespace(ns), client.MatchingFields{eventsByName: name})
			if err := g.note(err, "list", "events", ns); err != nil {
				return err
			}
			for _, e := range list.Items {
				if g.concerns(&e.InvolvedObject) {
					g.f.Events = append(g.f.Events, e)
				}
			}
		}
	}
	return nil
}

// eventsByName is the field that the API server selects events by.
const eventsByName = "involvedObject.name"

// concerns says that an event is about this claim, not about one that had its
// name before, or about one of its temporaries.
func (g *gatherer) concerns(o *corev1.ObjectReference) bool {
	if o.Kind != "PersistentVolumeClaim" && o.Kind != "Pod" {
		return false
	}
	if o.Name == g.f.Claim.Name {
		return o.Kind != "Pod" && (o.UID == "" || o.UID == g.f.Claim.UID)
	}
	return strings.HasPrefix(o.Name, "sluice-"+string(g.f.Claim.UID)+"-")
}
