package supervisor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/images"
	"github.com/sluice-dev/sluice/cluster/network"
	"github.com/sluice-dev/sluice/cluster/node"
	"github.com/sluice-dev/sluice/cluster/pki"
	"github.com/sluice-dev/sluice/cluster/storage"
)

// plan makes network, certificates and the nodes' namespaces, starts the image
// registry, and returns what has to be started.
func (s *supervisor) plan(g *component.Group) ([]component.Unit, error) {
	cfg := s.run.Config
	if err := network.SetUp(s.run.Network, len(cfg.Nodes)); err != nil {
		return nil, err
	}
	if err := s.serveImages(g); err != nil {
		return nil, err
	}
	authority, err := pki.New(s.layout.PKI())
	if err != nil {
		return nil, err
	}
	cp := controlplane.New(s.run, s.layout, config.InsideBin, authority)
	if err := authority.Kubeconfig(s.layout.Kubeconfig(), cp.Server(), cfg.Name, "admin", "system:masters"); err != nil {
		return nil, err
	}
	units, err := cp.Units()
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodes(cp, authority.CAFile())
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		more, err := n.Units()
		if err != nil {
			return nil, err
		}
		units = append(append(units, more...), s.awaitNode(n))
	}
	if cfg.CSI {
		more, err := storage.New(s.run, s.layout, nodes, cp).Units()
		if err != nil {
			return nil, err
		}
		units = append(units, more...)
	}
	return units, nil
}

// serveImages starts the registry that nodes pull from.
func (s *supervisor) serveImages(g *component.Group) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", s.run.Network.ControlPlane(), config.RegistryPort))
	if err != nil {
		return fmt.Errorf("start registry: %w", err)
	}
	g.Serve("registry", func(ctx context.Context) error { return images.Serve(ctx, listener, config.InsideImages) })
	return nil
}

// nodes makes the nodes and connects them.
func (s *supervisor) nodes(cp *controlplane.Plan, ca string) ([]*node.Node, error) {
	var nodes []*node.Node
	for i := range s.run.Config.Nodes {
		n, err := node.New(s.run, s.layout, i, cp, ca)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			if err := network.AttachNode(s.run.Network, i, len(s.run.Config.Nodes), n.Thread()); err != nil {
				return nil, fmt.Errorf("connect node %q: %w", n.Name, err)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// awaitNode is ready when Pods, with volumes if there is storage, can run on
// the node.
func (s *supervisor) awaitNode(n *node.Node) component.Unit {
	after := []string{n.Kubelet(), controlplane.APIServer}
	if s.run.Config.CSI {
		after = append(after, storage.NodeService(n.Name))
	}
	return component.Unit{
		Name:     n.Name,
		After:    after,
		Deadline: 2 * time.Minute,
		Step: func(ctx context.Context) error {
			rest, err := clientcmd.BuildConfigFromFlags("", s.layout.Kubeconfig())
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w", err)
			}
			client, err := kubernetes.NewForConfig(rest)
			if err != nil {
				return fmt.Errorf("make client: %w", err)
			}
			for {
				why := s.notReady(ctx, client, n.Name)
				if why == nil {
					return nil
				}
				select {
				case <-ctx.Done():
					return why
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
	}
}

// notReady says what is missing until Pods can run on a node.
func (s *supervisor) notReady(ctx context.Context, client kubernetes.Interface, name string) error {
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %q: %w", name, err)
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 || n.Status.Conditions[i].Status != corev1.ConditionTrue {
		message := "no condition yet"
		if i >= 0 {
			message = n.Status.Conditions[i].Message
		}
		return fmt.Errorf("node %q is not ready: %s", name, message)
	}
	if len(n.Spec.Taints) > 0 {
		return fmt.Errorf("node %q is tainted: %s", name, n.Spec.Taints[0].Key)
	}
	if !s.run.Config.CSI {
		return nil
	}
	c, err := client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get CSINode %q: %w", name, err)
	}
	if !slices.ContainsFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver.Name }) {
		return fmt.Errorf("node %q does not have the storage driver registered", name)
	}
	return nil
}
