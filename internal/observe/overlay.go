package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// With returns an observation in which an object is as a write left it.
func With(o populate.Observed, written client.Object) populate.Observed {
	switch w := written.(type) {
	case *v1alpha1.Population:
		o.Population = w
	case *corev1.PersistentVolumeClaim:
		if w.Namespace == o.Namespace && w.Name == o.Name {
			o.Claim = w
		} else {
			o.Primes = placed(o.Primes, *w, func(p *corev1.PersistentVolumeClaim) bool {
				return p.Namespace == w.Namespace && p.Name == w.Name
			})
		}
	case *corev1.Pod:
		o.Workers = placed(o.Workers, *w, func(p *corev1.Pod) bool {
			return p.Namespace == w.Namespace && p.Name == w.Name
		})
	case *corev1.PersistentVolume:
		o.Volumes = placed(o.Volumes, *w, func(v *corev1.PersistentVolume) bool { return v.Name == w.Name })
	}
	return o
}

// Without returns an observation in which the object with a UID is being
// deleted. That it is gone is for a later observation to say.
func Without(o populate.Observed, uid types.UID, at time.Time) populate.Observed {
	mark := func(m metav1.ObjectMeta) *metav1.Time {
		if m.UID == uid && m.DeletionTimestamp == nil {
			return &metav1.Time{Time: at}
		}
		return m.DeletionTimestamp
	}
	if o.Population != nil && o.Population.UID == uid {
		p := *o.Population
		p.DeletionTimestamp = mark(p.ObjectMeta)
		o.Population = &p
	}
	o.Primes, o.Workers = slices.Clone(o.Primes), slices.Clone(o.Workers)
	for i := range o.Primes {
		o.Primes[i].DeletionTimestamp = mark(o.Primes[i].ObjectMeta)
	}
	for i := range o.Workers {
		o.Workers[i].DeletionTimestamp = mark(o.Workers[i].ObjectMeta)
	}
	return o
}

// placed returns a copy of a list with v in the place of the item that is the
// same object, or at the end.
func placed[T any](list []T, v T, same func(*T) bool) []T {
	list = slices.Clone(list)
	for i := range list {
		if same(&list[i]) {
			list[i] = v
			return list
		}
	}
	return append(list, v)
}
