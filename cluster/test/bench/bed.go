package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	product "github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/observe"
)

// managerNamespace is where a manager that runs beside a cluster has its lease.
const managerNamespace = "sluice-system"

// hands is how many requests the benchmark itself makes at a time.
const hands = 32

// source is what every claim is filled from.
const sourceName = "example"

var helloKind = schema.GroupVersionKind{Group: "hello.k8s.io", Version: "v1alpha1", Kind: "Hello"}

// bed is a cluster to measure on.
type bed struct {
	cluster    *clustertest.Cluster
	kube       client.Client
	clients    *kubernetes.Clientset
	repository string
	populator  *v1alpha1.Populator
}

// newBed connects to a cluster.
func newBed(c *clustertest.Cluster, repository string) (*bed, error) {
	cfg := c.RESTConfig()
	cfg.UserAgent, cfg.QPS = "sluice-bench", -1
	kube, err := client.New(cfg, client.Options{Scheme: product.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return &bed{cluster: c, kube: kube, clients: clients, repository: repository}, nil
}

// define makes the definitions of a folder's or file's kinds.
func (b *bed) define(ctx context.Context, pattern string) error {
	files, err := filepath.Glob(filepath.Join(b.repository, pattern))
	if err != nil {
		return fmt.Errorf("find definitions: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read definition: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("read definition %q: %w", file, err)
		}
		if err := b.kube.Create(ctx, crd); err != nil {
			return fmt.Errorf("create definition %q: %w", crd.Name, err)
		}
		if err := clustertest.Until(ctx, func() (bool, error) {
			err := b.kube.Get(ctx, client.ObjectKeyFromObject(crd), crd)
			return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}), err
		}); err != nil {
			return fmt.Errorf("wait for definition %q: %w", crd.Name, err)
		}
	}
	return nil
}

// install makes what the manager needs that is not its chart: the definitions
// and its namespace.
func (b *bed) install(ctx context.Context) error {
	for _, pattern := range []string{"charts/sluice/files/crds/*.yaml", "examples/hello/hello-crd.yaml"} {
		if err := b.define(ctx, pattern); err != nil {
			return err
		}
	}
	return b.namespace(ctx, managerNamespace)
}

func (b *bed) namespace(ctx context.Context, name string) error {
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("create namespace %q: %w", name, err)
	}
	return nil
}

// space makes a namespace with a source in it.
func (b *bed) space(ctx context.Context, name string) error {
	if err := b.namespace(ctx, name); err != nil {
		return err
	}
	if err := b.kube.Create(ctx, newSource(name)); err != nil {
		return fmt.Errorf("create source: %w", err)
	}
	return nil
}

// populate makes the tutorial's Populator, with annotations for its workers,
// and waits until it is served.
func (b *bed) populate(ctx context.Context, annotations map[string]string) error {
	text, err := os.ReadFile(filepath.Join(b.repository, "examples/hello/hello-populator.yaml"))
	if err != nil {
		return fmt.Errorf("read Populator: %w", err)
	}
	p := &v1alpha1.Populator{}
	if err := yaml.Unmarshal(text, p); err != nil {
		return fmt.Errorf("read Populator: %w", err)
	}
	p.Spec.Worker.Annotations = annotations
	if err := b.kube.Create(ctx, p); err != nil {
		return fmt.Errorf("create Populator: %w", err)
	}
	b.populator = p
	return nil
}

// accepted waits until the Populator is served.
func (b *bed) accepted(ctx context.Context) error {
	if err := clustertest.Until(ctx, func() (bool, error) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(b.populator), b.populator)
		return meta.IsStatusConditionTrue(b.populator.Status.Conditions, v1alpha1.ConditionAccepted), err
	}); err != nil {
		return fmt.Errorf("wait for the Populator to be served: %w", err)
	}
	return nil
}

func newSource(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"fileName": "example.txt", "fileContents": "Hello, world!"},
	}}
	u.SetGroupVersionKind(helloKind)
	u.SetNamespace(namespace)
	u.SetName(sourceName)
	return u
}

// newClaim is a claim, to be filled or plain.
func newClaim(namespace, name, class string, filled bool) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			},
		},
	}
	if filled {
		claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(helloKind.Group), Kind: helloKind.Kind, Name: sourceName}
	}
	return claim
}

// pod is the worker that Sluice would make for a plain claim, made by hand.
func (b *bed) pod(programs *observe.Programs, claim *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	r := programs.Render(b.populator, newSource(claim.Namespace), claim, nil, 1)
	if r.Pod == nil {
		return nil, fmt.Errorf("render worker: %s: %s", r.Reason, r.Message)
	}
	r.Pod.Namespace, r.Pod.Name = claim.Namespace, claim.Name
	r.Pod.Spec.Volumes = append(r.Pod.Spec.Volumes, corev1.Volume{
		Name: v1alpha1.TargetVolume,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		},
	})
	return r.Pod, nil
}

// each calls do for 0 to n-1, several at a time, and returns the first error.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var running sync.WaitGroup
	for range min(hands, n) {
		running.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}
