// Package shipped applies the Populators that come with Sluice. Helm cannot do
// that: it would have to create objects of a kind that it installs in the same
// run, past a webhook that does not answer yet. So the chart hands them over in
// files, and the leader applies them as soon as it can.
//
// What somebody changed in such a Populator is theirs: it is applied by
// server-side apply without force, only when it is not there or when this version
// ships another one than was applied last, and never over a change. A Populator
// of the same name that was not made from these files is left alone altogether.
package shipped

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fieldManager owns the fields of Populators that are applied from files.
const fieldManager = "sluice-shipped"

// ownerPrefix and the name of a Populator make the name of the ClusterRole that
// the Populator belongs to: it goes with the chart, or when its source is turned
// off.
const ownerPrefix = "sluice-shipped-"

var ownerKind = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}

// A Populator is one that comes with Sluice.
type Populator struct {
	// object as it stands in its file.
	object *unstructured.Unstructured
	// digest of the file.
	digest string
}

// Load reads the Populators of a directory, one in each file whose name ends in
// .yaml. A mounted ConfigMap is such a directory.
func Load(dir string) (map[string]Populator, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("look for Populators in %q: %w", dir, err)
	}
	out := map[string]Populator{}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read Populator: %w", err)
		}
		var p v1alpha1.Populator
		if err := yaml.UnmarshalStrict(raw, &p); err != nil {
			return nil, fmt.Errorf("read Populator %q: %w", name, err)
		}
		object := map[string]any{}
		if err := yaml.Unmarshal(raw, &object); err != nil {
			return nil, fmt.Errorf("read Populator %q: %w", name, err)
		}
		u := &unstructured.Unstructured{Object: object}
		if want := v1alpha1.GroupVersion.WithKind("Populator"); u.GroupVersionKind() != want || u.GetName() == "" {
			return nil, fmt.Errorf("read Populator %q: it is %s %q, want a %s with a name", name, u.GroupVersionKind().Kind, u.GetName(), want.Kind)
		}
		sum := sha256.Sum256(raw)
		out[u.GetName()] = Populator{object: u, digest: "sha256:" + hex.EncodeToString(sum[:])}
	}
	return out, nil
}

// Controller keeps shipped Populators applied.
type Controller struct {
	// client reads Populators from the cache and applies them; live reads from
	// the API server.
	client  client.Client
	live    client.Reader
	shipped map[string]Populator
	// tell says on a Populator why it was left alone.
	tell func(p *v1alpha1.Populator, message string)
	// told remembers that, by name: which of somebody's versions, and which of
	// ours.
	told map[string]string
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller. Only one Reconcile may run at a time.
func New(c client.Client, live client.Reader, shipped map[string]Populator, tell func(p *v1alpha1.Populator, message string)) *Controller {
	return &Controller{client: c, live: live, shipped: shipped, tell: tell, told: map[string]string{}}
}

// Reconcile applies one Populator, if it has to be. An error is the answer of an
// API server whose webhook does not reach this manager yet, and is tried again.
func (c *Controller) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	ours, ok := c.shipped[r.Name]
	if !ok {
		return reconcile.Result{}, nil
	}
	there := &v1alpha1.Populator{}
	err := c.client.Get(ctx, types.NamespacedName{Name: r.Name}, there)
	switch {
	case apierrors.IsNotFound(err):
		there = nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get Populator %q: %w", r.Name, err)
	case there.DeletionTimestamp != nil:
		return reconcile.Result{}, nil
	case there.Annotations[v1alpha1.AnnotationShipped] == "":
		c.keep(ctx, there, ours, "was not made by Sluice")
		return reconcile.Result{}, nil
	case there.Annotations[v1alpha1.AnnotationShipped] == ours.digest:
		return reconcile.Result{}, nil
	}
	owner, err := c.owner(ctx, r.Name)
	if err != nil || owner == nil {
		return reconcile.Result{RequeueAfter: ownerPatience}, err
	}
	err = c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(ours.applied(owner)), client.FieldOwner(fieldManager))
	switch {
	case apierrors.IsConflict(err) && there != nil:
		c.keep(ctx, there, ours, "was changed by somebody: "+conflicts(err))
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("apply Populator %q: %w", r.Name, err)
	}
	logf.FromContext(ctx).Info("applied the Populator of this version", "digest", ours.digest)
	return reconcile.Result{}, nil
}

// owner is what the Populator belongs to; nil while that is not there or must
// not be seen, as during an installation and a removal.
func (c *Controller) owner(ctx context.Context, populator string) (*metav1.PartialObjectMetadata, error) {
	role := &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(ownerKind)
	err := c.live.Get(ctx, types.NamespacedName{Name: ownerPrefix + populator}, role)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil //nolint:nilnil // nothing to apply it for
	case err != nil:
		return nil, fmt.Errorf("get ClusterRole %q: %w", ownerPrefix+populator, err)
	case role.DeletionTimestamp != nil:
		return nil, nil //nolint:nilnil // nothing to apply it for any more
	}
	return role, nil
}

// applied is what is sent to the API server.
func (p Populator) applied(owner *metav1.PartialObjectMetadata) *unstructured.Unstructured {
	u := p.object.DeepCopy()
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationShipped] = p.digest
	u.SetAnnotations(annotations)
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: ownerKind.GroupVersion().String(), Kind: ownerKind.Kind, Name: owner.Name, UID: owner.UID,
	}})
	return u
}

// keep says, once for each version, that a Populator is left as it is.
func (c *Controller) keep(ctx context.Context, there *v1alpha1.Populator, ours Populator, why string) {
	key := fmt.Sprintf("%s/%d %s", there.UID, there.Generation, ours.digest)
	if c.told[there.Name] == key {
		return
	}
	c.told[there.Name] = key
	logf.FromContext(ctx).Info("left the Populator as it is", "why", why)
	c.tell(there, fmt.Sprintf("Populator %q %s; what this version of Sluice ships is not applied. Delete it to get that", there.Name, why))
}

// conflicts names the fields that somebody changed, the first three of them.
func conflicts(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Details == nil {
		return err.Error()
	}
	var fields []string
	for i, cause := range status.Status().Details.Causes {
		if i == 3 {
			fields = append(fields, fmt.Sprintf("and %d more", len(status.Status().Details.Causes)-i))
			break
		}
		fields = append(fields, strings.TrimPrefix(cause.Field, "."))
	}
	return strings.Join(fields, ", ")
}
