package population

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

var (
	// kube is a client of the administrator.
	kube client.Client
	// cluster is what all tests run on.
	cluster *clustertest.Cluster
	// program is the manager, built from this repository.
	program string
)

func TestMain(m *testing.M) {
	// Tests wait for the cluster more than they work. The command line has the
	// last word.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err) // every test binary has the flag
	}
	dir, err := os.MkdirTemp("", "sluice-population-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "sluice-manager")
	ctrl.SetLogger(logr.Discard()) // the tests have only a client of it
	var simulator *simulate.Simulator
	code := clustertest.Main(m, clustertest.Config{AuditLog: true}, func(c *clustertest.Cluster) error {
		cluster = c
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := build(ctx); err != nil {
			return err
		}
		if err := prepare(ctx); err != nil {
			return err
		}
		simulator, err = simulate.Start(ctx, c.RESTConfig(), simulate.Config{Nodes: 3})
		return err
	})
	_ = simulator // it ends with the process, as the cluster did
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// repository is the folder of the product's module.
const repository = "../../../.."

func build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/sluice-manager")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the manager: %w\n%s", err, out)
	}
	return nil
}

// prepare installs the definitions of the product and of the tutorial's source
// kind, as the chart and the tutorial's user would.
func prepare(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, v1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if kube, err = client.New(cluster.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(repository, "charts/sluice/files/crds/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range append(files, filepath.Join(repository, "examples/hello/hello-crd.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		tutorialDefinition = &apiextensionsv1.CustomResourceDefinition{} // the last one is
		if err := yaml.UnmarshalStrict(text, tutorialDefinition); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := define(ctx, tutorialDefinition.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// define makes a definition and waits until its kind is served.
func define(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := kube.Create(ctx, crd); err != nil {
		return fmt.Errorf("create definition %q: %w", crd.Name, err)
	}
	if err := clustertest.Until(ctx, func() (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return fmt.Errorf("wait for definition %q: %w", crd.Name, err)
	}
	return nil
}
