package release

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/cli"
)

// leaseName is the Lease that the leading manager holds.
const leaseName = "sluice-manager"

// Gather reads what a release of one claim is decided from. system is the
// namespace of the manager.
func Gather(ctx context.Context, from client.Reader, claim types.NamespacedName, system string, now time.Time) (Facts, error) {
	f := Facts{Now: now, Claim: &corev1.PersistentVolumeClaim{}}
	if err := from.Get(ctx, claim, f.Claim); err != nil {
		if right, ok := cli.Missing(err, "get", "persistentvolumeclaims", claim.Namespace); ok {
			return Facts{}, fmt.Errorf("read claim %q: you lack the right to %s: %w", claim, right, err)
		}
		return Facts{}, fmt.Errorf("read claim %q: %w", claim, err)
	}
	if err := f.labelled(ctx, from); err != nil {
		return Facts{}, err
	}
	if err := f.volumes(ctx, from); err != nil {
		return Facts{}, err
	}
	p := &v1alpha1.Population{}
	switch err := from.Get(ctx, claim, p); {
	case err == nil:
		f.Population = p
	case !f.unread(err, "get", "populations.sluice.dev", claim.Namespace):
		return Facts{}, fmt.Errorf("read population %q: %w", claim, err)
	}
	l := &coordinationv1.Lease{}
	switch err := from.Get(ctx, client.ObjectKey{Namespace: system, Name: leaseName}, l); {
	case err == nil:
		f.Lease = l
	case !f.unread(err, "get", "leases.coordination.k8s.io", system):
		return Facts{}, fmt.Errorf("read lease %q: %w", leaseName, err)
	default:
		f.LeaseUnread = !cli.Absent(err)
	}
	return f, nil
}

// unread says that an error leaves the rest readable: there is no such thing,
// or a right is missing, which is noted.
func (f *Facts) unread(err error, verb, resource, namespace string) bool {
	if cli.Absent(err) {
		return true
	}
	right, ok := cli.Missing(err, verb, resource, namespace)
	if ok {
		f.Missing = append(f.Missing, right)
	}
	return ok
}

// labelled lists what bears the claim's UID: everywhere if that is allowed,
// else in the claim's namespace.
func (f *Facts) labelled(ctx context.Context, from client.Reader) error {
	of := client.MatchingLabels{v1alpha1.LabelClaimUID: string(f.Claim.UID)}
	for _, kind := range []struct {
		resource string
		list     client.ObjectList
	}{
		{"pods", &corev1.PodList{}},
		{"configmaps", &corev1.ConfigMapList{}},
		{"persistentvolumeclaims", &corev1.PersistentVolumeClaimList{}},
	} {
		resource, list := kind.resource, kind.list
		err := from.List(ctx, list, of)
		if apierrors.IsForbidden(err) {
			err = from.List(ctx, list, of, client.InNamespace(f.Claim.Namespace))
		}
		if err != nil {
			if f.unread(err, "list", resource, f.Claim.Namespace) {
				continue
			}
			return fmt.Errorf("list %s of claim %q: %w", resource, f.Claim.Name, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if o, ok := item.(client.Object); ok {
				f.Labelled = append(f.Labelled, o)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read list of %s: %w", resource, err)
		}
	}
	return nil
}

// volumes reads those that primes are bound to.
func (f *Facts) volumes(ctx context.Context, from client.Reader) error {
	for _, o := range f.Labelled {
		prime, ok := o.(*corev1.PersistentVolumeClaim)
		if !ok || prime.Spec.VolumeName == "" || !temporary(prime, f.Claim.UID) {
			continue
		}
		pv := &corev1.PersistentVolume{}
		err := from.Get(ctx, client.ObjectKey{Name: prime.Spec.VolumeName}, pv)
		switch {
		case err == nil:
			f.Volumes = append(f.Volumes, *pv)
		case !f.unread(err, "get", "persistentvolumes", ""):
			return fmt.Errorf("read volume %q: %w", prime.Spec.VolumeName, err)
		}
	}
	return nil
}
