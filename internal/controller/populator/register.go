package populator

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/registration"
)

// register makes the VolumePopulator of an accepted Populator. A cluster
// without that kind does without: it is told when the kind appears.
func (c *Controller) register(ctx context.Context, p *v1alpha1.Populator) error {
	existing, state := c.registrationOf(p)
	if state.Status != kinds.Readable {
		return nil
	}
	if existing != nil {
		if u, ok := existing.(*unstructured.Unstructured); ok && registration.Registers(u) != registration.KindOf(p) {
			// Somebody edited it. Its deletion is told, and a new one made.
			return c.delete(ctx, existing)
		}
		return nil
	}
	// The Populator's own name, unless somebody else's registration has it.
	for _, name := range []string{p.Name, p.Name + "-" + string(p.UID)} {
		created, err := c.create(ctx, p, name)
		switch {
		case meta.IsNoMatchError(err):
			return nil
		case err != nil:
			return err
		case created:
			return nil
		}
	}
	return fmt.Errorf("create VolumePopulator for Populator %q: the names are taken", p.Name)
}

// create makes the VolumePopulator under a name. It returns false when
// somebody else has one of that name.
func (c *Controller) create(ctx context.Context, p *v1alpha1.Populator, name string) (bool, error) {
	v := &v1beta1.VolumePopulator{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{owner(p)},
		},
		SourceKind: metav1.GroupKind{Group: p.Spec.SourceKind.Group, Kind: p.Spec.SourceKind.Kind},
	}
	err := c.client.Create(ctx, v, client.FieldOwner(fieldManager))
	switch {
	case err == nil:
		logf.FromContext(ctx).Info("registered source kind", "volumePopulator", name)
		return true, nil
	case !apierrors.IsAlreadyExists(err):
		return false, fmt.Errorf("create VolumePopulator %q: %w", name, err)
	}
	var there v1beta1.VolumePopulator
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, &there); err != nil {
		return false, fmt.Errorf("get VolumePopulator %q: %w", name, err)
	}
	return ownedBy(&there, p), nil
}

// unregister deletes the VolumePopulator of a Populator that is not accepted.
func (c *Controller) unregister(ctx context.Context, p *v1alpha1.Populator) error {
	existing, _ := c.registrationOf(p)
	if existing == nil {
		return nil
	}
	return c.delete(ctx, existing)
}

func (c *Controller) delete(ctx context.Context, registered metav1.Object) error {
	v := &v1beta1.VolumePopulator{ObjectMeta: metav1.ObjectMeta{Name: registered.GetName()}}
	err := c.client.Delete(ctx, v, client.Preconditions{UID: ptr.To(registered.GetUID())})
	if err != nil && ignoreConflict(err) != nil {
		return fmt.Errorf("delete VolumePopulator %q: %w", registered.GetName(), err)
	}
	return nil
}

// registrationOf returns the VolumePopulator that was made for a Populator.
func (c *Controller) registrationOf(p *v1alpha1.Populator) (metav1.Object, kinds.State) {
	all, state := c.kinds.List(registration.Kind)
	for _, o := range all {
		if ownedBy(o, p) {
			return o, state
		}
	}
	return nil, state
}

func owner(p *v1alpha1.Populator) metav1.OwnerReference {
	return *metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("Populator"))
}

func ownedBy(o metav1.Object, p *v1alpha1.Populator) bool {
	return metav1.IsControlledBy(o, p)
}
