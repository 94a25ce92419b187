package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// What all tests share.
var (
	cluster    *clustertest.Cluster
	kube       client.Client         // as administrator
	clientset  *kubernetes.Clientset // for logs
	sluice     helm.Release
	repository = filepath.Join("..", "..", "..")
)

func TestMain(m *testing.M) {
	// Tests wait for the cluster more than they work: more of them than there
	// are processors can do so side by side. The command line has the last word.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err) // every test binary has the flag
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if sluice, err = helm.BuildSluice(context.Background(), config.Config{Name: "e2e"}, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return clustertest.Main(m, clustertest.Config{Nodes: clustertest.Nodes(2), CSI: true}, ready)
}

// ready installs Sluice and what the tests of several files need.
func ready(c *clustertest.Cluster) error {
	cluster = c
	ctrllog.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	var err error
	if kube, err = client.New(c.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	if clientset, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return fmt.Errorf("build clientset: %w", err)
	}
	sluice.Kubeconfig = c.Kubeconfig
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if _, err := sluice.Install(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, managerLog(ctx))
	}
	for _, file := range []string{
		filepath.Join(repository, "examples", "hello", "hello-crd.yaml"),
		filepath.Join(repository, "examples", "hello", "hello-populator.yaml"),
		filepath.Join("testdata", "delay.yaml"),
	} {
		if out, err := kubectl(ctx, "apply", "-f", file); err != nil {
			return fmt.Errorf("apply %q: %w\n%s", file, err, out)
		}
	}
	if out, err := kubectl(ctx, "wait", "--for=condition=Accepted", "populator/hello", "populator/delay", "--timeout=30s"); err != nil {
		return fmt.Errorf("wait for Populators: %w\n%s\n%s", err, out, managerLog(ctx))
	}
	return nil
}
