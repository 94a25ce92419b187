package manager

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Namespaces knows which namespaces Sluice keeps out of.
type Namespaces struct {
	// Cache reads the metadata of namespaces.
	Cache client.Reader
	// Own is the manager's namespace, Excluded those that the operator named.
	Own      string
	Excluded []string
}

// Namespaces returns the rule of this manager.
func (p Parts) Namespaces() *Namespaces {
	return &Namespaces{Cache: p.Manager.GetCache(), Own: p.Options.Namespace, Excluded: p.Options.ExcludedNamespaces}
}

// Out says whether Sluice keeps out of a namespace: it fills no claim there and
// says nothing about any. It is out of a namespace that does not exist, or is
// being deleted: nothing can be made there, events included.
func (n *Namespaces) Out(ctx context.Context, name string) (bool, error) {
	if name == metav1.NamespaceSystem || name == n.Own || slices.Contains(n.Excluded, name) {
		return true, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := n.Cache.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get namespace %q: %w", name, err)
	}
	return ns.DeletionTimestamp != nil || ns.Labels[v1alpha1.LabelIgnore] == "true", nil
}
