package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/toolchain"
)

var (
	definitions     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	snapshotClasses = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
)

// applier makes the driver's objects.
type applier struct {
	kubeconfig string
	// crossNamespace asks for the ReferenceGrant that the provisioner looks for
	// when claims may name a source in another namespace.
	crossNamespace bool
}

func (a applier) apply(ctx context.Context) error {
	rest, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	rest.QPS, rest.Burst = 200, 200
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	objects, err := dynamic.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	created := metav1.CreateOptions{FieldManager: "sluice-cluster"}
	if err := a.define(ctx, objects); err != nil {
		return err
	}
	storage := client.StorageV1()
	if _, err := storage.CSIDrivers().Create(ctx, csiDriver(), created); err != nil {
		return fmt.Errorf("make CSIDriver: %w", err)
	}
	for _, c := range storageClasses() {
		if _, err := storage.StorageClasses().Create(ctx, c, created); err != nil {
			return fmt.Errorf("make StorageClass %q: %w", c.Name, err)
		}
	}
	for _, c := range attributesClasses() {
		if _, err := storage.VolumeAttributesClasses().Create(ctx, c, created); err != nil {
			return fmt.Errorf("make VolumeAttributesClass %q: %w", c.Name, err)
		}
	}
	// The kind is served a moment after its definition.
	for {
		_, err := objects.Resource(snapshotClasses).Create(ctx, snapshotClass(), created)
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) || !wait(ctx, 50*time.Millisecond) {
			return fmt.Errorf("make VolumeSnapshotClass: %w", err)
		}
	}
}

// define makes the kinds that the side-cars rely on.
func (a applier) define(ctx context.Context, client dynamic.Interface) error {
	for _, m := range toolchain.Manifests() {
		if strings.Contains(m.File, "referencegrants") && !a.crossNamespace {
			continue
		}
		file := filepath.Join(config.InsideBin, toolchain.ManifestDir, filepath.Base(m.File))
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read definition: %w", err)
		}
		var crd unstructured.Unstructured
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return fmt.Errorf("decode definition %q: %w", filepath.Base(file), err)
		}
		if _, err := client.Resource(definitions).Create(ctx, &crd, metav1.CreateOptions{FieldManager: "sluice-cluster"}); err != nil {
			return fmt.Errorf("define %q: %w", crd.GetName(), err)
		}
	}
	return nil
}

// wait pauses and says whether there is time left.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
