package shipped

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const text = `apiVersion: sluice.dev/v1alpha1
kind: Populator
metadata: {name: tape, labels: {by: us}}
spec:
  sourceKind: {group: sluice.dev, kind: TapeSource}
  worker: {image: "tape:VERSION"}
`

// load is what a chart of some version hands over.
func load(t *testing.T, version string) map[string]Populator {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tape.yaml"), []byte(strings.ReplaceAll(text, "VERSION", version)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// world is a cluster with the ClusterRole that the Populator belongs to.
type world struct {
	client client.Client
	// fail is the answer to the next Apply, and applied how many there were.
	fail    error
	applied int
	told    []string
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{}
	w.client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				w.applied++
				if err := w.fail; err != nil {
					w.fail = nil
					return err
				}
				return c.Apply(ctx, o, opts...)
			},
		}).Build()
	return w
}

// run is one look of a new leader of some version.
func (w *world) run(t *testing.T, version string) (reconcile.Result, error) {
	t.Helper()
	c := New(w.client, w.client, load(t, version), func(_ *v1alpha1.Populator, message string) { w.told = append(w.told, message) })
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "tape"}}
	result, err := c.Reconcile(t.Context(), request)
	if err == nil {
		again, err := c.Reconcile(t.Context(), request)
		if err != nil || again != result {
			t.Errorf("a second look ends in %+v, %v; the first in %+v", again, err, result)
		}
	}
	return result, err
}

func (w *world) populator(t *testing.T) *v1alpha1.Populator {
	t.Helper()
	p := &v1alpha1.Populator{}
	err := w.client.Get(t.Context(), types.NamespacedName{Name: "tape"}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func role() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sluice-shipped-tape", UID: "role"}}
}

func TestApplied(t *testing.T) {
	w := newWorld(t, role())
	if _, err := w.run(t, "1"); err != nil {
		t.Fatal(err)
	}
	p := w.populator(t)
	if p == nil || p.Spec.Worker.Image != "tape:1" || p.Labels["by"] != "us" {
		t.Fatalf("Populator = %+v, want the one of the file", p)
	}
	if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "ClusterRole" || o[0].UID != "role" || o[0].Controller != nil {
		t.Errorf("owners = %+v, want the ClusterRole", o)
	}
	if _, err := w.run(t, "1"); err != nil || w.applied != 1 {
		t.Errorf("a new leader of the same version: %v, applied %d times, want 1", err, w.applied)
	}
	if _, err := w.run(t, "2"); err != nil || w.populator(t).Spec.Worker.Image != "tape:2" {
		t.Errorf("the next version: %v, image %s", err, w.populator(t).Spec.Worker.Image)
	}
	if err := w.client.Delete(t.Context(), w.populator(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(t, "2"); err != nil || w.populator(t) == nil {
		t.Errorf("one that was deleted is applied again: %v", err)
	}
	if len(w.told) > 0 {
		t.Errorf("told %q, want nothing", w.told)
	}
}

func TestChanged(t *testing.T) {
	w := newWorld(t, role())
	if _, err := w.run(t, "1"); err != nil {
		t.Fatal(err)
	}
	p := w.populator(t)
	p.Spec.Worker.Image = "mine:1"
	if err := w.client.Update(t.Context(), p, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(t, "1"); err != nil || w.populator(t).Spec.Worker.Image != "mine:1" || len(w.told) > 0 {
		t.Errorf("the same version: %v, image %s, told %q; want the change left alone", err, w.populator(t).Spec.Worker.Image, w.told)
	}
	if _, err := w.run(t, "2"); err != nil || w.populator(t).Spec.Worker.Image != "mine:1" {
		t.Errorf("the next version: %v, image %s; want the change left alone", err, w.populator(t).Spec.Worker.Image)
	}
	if len(w.told) != 1 || !strings.Contains(w.told[0], "spec.worker.image") || !strings.Contains(w.told[0], "Delete it") {
		t.Errorf("told %q, want once the field and the way out", w.told)
	}
}

func TestForeign(t *testing.T) {
	mine := &v1alpha1.Populator{ObjectMeta: metav1.ObjectMeta{Name: "tape"}, Spec: v1alpha1.PopulatorSpec{Worker: &v1alpha1.WorkerTemplate{Image: "mine:1"}}}
	w := newWorld(t, role(), mine)
	if _, err := w.run(t, "1"); err != nil || w.applied > 0 || w.populator(t).Spec.Worker.Image != "mine:1" {
		t.Errorf("%v, applied %d times; want somebody's Populator left alone", err, w.applied)
	}
	if len(w.told) != 1 || !strings.Contains(w.told[0], "was not made by Sluice") {
		t.Errorf("told %q, want once why", w.told)
	}
}

func TestNotYet(t *testing.T) {
	w := newWorld(t)
	if r, err := w.run(t, "1"); err != nil || r.RequeueAfter != ownerPatience || w.populator(t) != nil {
		t.Errorf("without its ClusterRole: %+v, %v, Populator %v; want to wait", r, err, w.populator(t))
	}
	w = newWorld(t, role())
	w.fail = apierrors.NewInternalError(errors.New(`failed calling webhook "populators.sluice.dev"`))
	if _, err := w.run(t, "1"); err == nil {
		t.Error("a webhook that does not answer is no error, want one, to be tried again")
	}
	if _, err := w.run(t, "1"); err != nil || w.populator(t) == nil {
		t.Errorf("once it answers: %v", err)
	}
	w = newWorld(t, role())
	w.fail = apierrors.NewConflict(schema.GroupResource{Resource: "populators"}, "tape", errors.New("made at the same time"))
	if _, err := w.run(t, "1"); err == nil || len(w.told) > 0 {
		t.Errorf("a conflict about what is not seen yet: %v, told %q; want another look", err, w.told)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"Field": text + "  wroker: {}\n", "Kind": strings.Replace(text, "kind: Populator", "kind: Population", 1),
		"Name": strings.Replace(text, "name: tape, ", "", 1), "YAML": "a: [",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "read Populator") {
				t.Errorf("Load = %v, want an error that names the file", err)
			}
		})
	}
}
