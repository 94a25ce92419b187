package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
	"github.com/sluice-dev/sluice/internal/controller/datasource"
	"github.com/sluice-dev/sluice/internal/controller/populator"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/webhook/certificate"
	claimwebhook "github.com/sluice-dev/sluice/internal/webhook/claim"
	populatorwebhook "github.com/sluice-dev/sluice/internal/webhook/populator"
)

// repository is the folder of the product's module.
const repository = "../../../.."

var (
	// kube is a client of the administrator.
	kube client.Client
	// cluster is what all tests run on, one after another.
	cluster *clustertest.Cluster
)

func TestMain(m *testing.M) {
	ctx, cancel := context.WithCancel(context.Background())
	code := clustertest.Main(m, clustertest.Config{WithoutScheduler: true}, func(c *clustertest.Cluster) error {
		cluster = c
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		return start(ctx)
	})
	cancel()
	os.Exit(code)
}

// start installs the chart but for its Deployment, and runs the manager.
func start(ctx context.Context) error {
	var err error
	if kube, err = client.New(cluster.RESTConfig(), client.Options{Scheme: manager.Scheme()}); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // the network is tcp
	if err := listener.Close(); err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	if err := install(ctx, port); err != nil {
		return err
	}
	if err := run(ctx, port); err != nil {
		return err
	}
	return inForce(ctx)
}

// inForce waits until the API server asks the webhooks: it learns of their
// certificate a moment after the manager is ready, and lets claims pass until
// then.
func inForce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return clustertest.Until(ctx, func() (bool, error) {
		c, w, err := warnedClient()
		if err != nil {
			return false, err
		}
		err = c.Create(ctx, claimOf("default", "nobody.example", "Thing"), client.DryRunAll)
		return len(w.texts) > 0, err
	})
}

func install(ctx context.Context, port int) error {
	if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: helm.Namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	text, err := helm.Sluice(repository, cluster.Kubeconfig, "").Template(ctx, config.Kubernetes)
	if err != nil {
		return fmt.Errorf("render chart: %w", err)
	}
	for _, document := range strings.Split(text, "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return fmt.Errorf("read chart: %w", err)
		}
		switch o.GetKind() {
		case "", "Deployment", "PodDisruptionBudget", "Service":
			continue
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			if err := byAddress(o, port); err != nil {
				return err
			}
		}
		if err := kube.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return createFile(ctx, filepath.Join(repository, "examples/hello/hello-crd.yaml"))
}

// byAddress makes the webhooks of a configuration be called by address.
func byAddress(o *unstructured.Unstructured, port int) error {
	webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		hook, ok := w.(map[string]any)
		if !ok {
			return errors.New("a webhook is no object")
		}
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://%s%s", net.JoinHostPort(cluster.HostAddress, fmt.Sprint(port)), path)}
	}
	return unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
}

// run runs the manager with the rights of its service account until the
// process ends, and returns when it is ready.
func run(ctx context.Context, port int) error {
	cfg := cluster.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + helm.Namespace + ":sluice-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + helm.Namespace, "system:authenticated"},
	}
	ctrl.SetLogger(logr.Discard())
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	keeper := certificate.New(clients, certificate.Options{Namespace: helm.Namespace, Hosts: []string{cluster.HostAddress}, Log: ctrl.Log})
	o := manager.Options{
		Namespace: helm.Namespace, LeaseDuration: 12 * time.Second, QPS: -1, MetricsAddress: "0", HealthAddress: "0",
		Workers: 4, GracePeriod: time.Second, Webhooks: keeper.Server("", port),
	}
	indexes := func(ctx context.Context, p manager.Parts) error {
		return observe.AddIndexes(ctx, p.Manager.GetFieldIndexer())
	}
	life := context.WithoutCancel(ctx)
	mgr, err := manager.New(life, cfg, o, indexes, populator.Setup, datasource.Setup, populatorwebhook.Setup, claimwebhook.Setup, keeper.Setup)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(life) }()
	started := mgr.GetWebhookServer().StartedChecker()
	for ctx.Err() == nil {
		select {
		case err := <-ended:
			return fmt.Errorf("the manager ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
		if keeper.Ready(nil) == nil && started(nil) == nil {
			return nil
		}
	}
	return fmt.Errorf("wait for the manager: %w", ctx.Err())
}

// createFile creates the objects of a YAML file.
func createFile(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(text), "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := kube.Create(ctx, o); err != nil {
			return fmt.Errorf("create %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
