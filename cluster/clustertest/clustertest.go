// Package clustertest gives Go tests a real Kubernetes cluster on this
// machine: etcd, API server, controllers and scheduler, and if asked for real
// nodes and storage.
//
// A test binary usually starts one cluster for all its tests:
//
//	var cluster *clustertest.Cluster
//
//	func TestMain(m *testing.M) {
//		os.Exit(clustertest.Main(m, clustertest.Config{}, func(c *clustertest.Cluster) error {
//			cluster = c
//			return nil
//		}))
//	}
//
// A cluster lives in namespaces of its own and ends with the test binary, also
// if that is killed. It needs root on Linux and the programs that
// sluice-build makes.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
)

type (
	// Config describes the cluster to start; its zero value is a control plane
	// without nodes.
	Config = config.Config
	// Node describes one real node.
	Node = config.Node
)

// Nodes returns n real nodes with the default labels, for Config.Nodes.
func Nodes(n int) []Node { return config.DefaultNodes(n) }

// Cluster is a running cluster.
type Cluster struct {
	// Name tells clusters on one machine apart.
	Name string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// HostAddress is the address at which API server and Pods reach servers of
	// the test process, such as webhooks.
	HostAddress string
	// RegistryAddress is the host:port of the cluster's image registry.
	RegistryAddress string
	// AuditLog is the path of the audit log; the file exists if
	// Config.AuditLog is set.
	AuditLog string
	// BinDir holds the programs, kubectl among them.
	BinDir string

	run  *lifecycle.Run
	rest *rest.Config
}

// Start starts a cluster and returns when all of it is ready. If ctx ends
// meanwhile, or a component dies, nothing is left behind and the error carries
// the end of the component's log.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	return start(ctx, cfg, lifecycle.Options{})
}

func start(ctx context.Context, cfg Config, opts lifecycle.Options) (*Cluster, error) {
	run, err := lifecycle.Start(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	layout := run.Config().Layout()
	rc, err := clientcmd.BuildConfigFromFlags("", layout.Kubeconfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read kubeconfig of cluster %q: %w", run.Config().Name, err), run.Stop())
	}
	rc.QPS, rc.Burst = 500, 1000
	return &Cluster{
		Name:            run.Config().Name,
		Kubeconfig:      layout.Kubeconfig(),
		HostAddress:     run.Network().Host().String(),
		RegistryAddress: fmt.Sprintf("%s:%d", run.Network().ControlPlane(), config.RegistryPort),
		AuditLog:        layout.AuditLog(),
		BinDir:          run.Config().BinDir,
		run:             run,
		rest:            rc,
	}, nil
}

// RESTConfig returns a new copy of the administrator's client configuration,
// with client limits that do not slow a test down.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// Failed is closed when the cluster ends without Stop having been called, for
// example because a component died.
func (c *Cluster) Failed() <-chan struct{} { return c.run.Done() }

// Err says why the cluster ended, with the end of the component's log; nil
// while it runs and after a regular Stop.
func (c *Cluster) Err() error { return c.run.Err() }

// Log returns the end of a component's log, for a failing test to print.
func (c *Cluster) Log(component string, lines int) string { return c.run.Log(component, lines) }

// Stop ends the cluster and removes everything it made. It returns the reason
// if the cluster had already failed. It may be called more than once.
func (c *Cluster) Stop() error { return c.run.Stop() }

// Main starts a cluster, hands it to ready, runs the tests and stops the
// cluster; it returns the exit code for os.Exit. If a component dies meanwhile
// the process ends at once with the end of that component's log.
func Main(m *testing.M, cfg Config, ready func(*Cluster) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := Start(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stopping := make(chan struct{})
	go func() {
		select {
		case <-stopping:
		case <-c.Failed():
			if err := c.Err(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				_ = c.Stop() // the reason was printed above
				os.Exit(1)
			}
		}
	}()
	code := 1
	if err := ready(c); err != nil {
		fmt.Fprintf(os.Stderr, "prepare cluster %q: %v\n", c.Name, err)
	} else {
		code = m.Run()
	}
	close(stopping)
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
