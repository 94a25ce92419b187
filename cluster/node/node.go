// Package node describes the programs of one real node: containerd, kubelet and
// kube-proxy, in the node's own mount namespace and, from the second node on,
// its own network namespace. Every node finds the usual paths
// (/var/lib/kubelet, /run/containerd, /var/log/pods) for itself.
package node

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/cluster/cgroups"
	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/images"
	"github.com/sluice-dev/sluice/cluster/sandbox"
)

// Paths as a node's programs see them.
const (
	KubeletRoot      = "/var/lib/kubelet"
	containerdSocket = "/run/containerd/containerd.sock"
	kubeletHealth    = 10248
	proxyHealth      = 10256
)

// Node is one real node of a cluster.
type Node struct {
	config.Node

	run    config.Run
	layout config.Layout
	index  int
	plan   *controlplane.Plan
	ca     string
	thread *sandbox.Thread
}

// Names of the node's units.
func (n *Node) containerd() string { return "containerd-" + n.Name }
func (n *Node) proxy() string      { return "kube-proxy-" + n.Name }

// Kubelet is the name of the unit that is ready when the node's kubelet serves.
func (n *Node) Kubelet() string { return "kubelet-" + n.Name }

// Thread is where the node's programs run.
func (n *Node) Thread() *sandbox.Thread { return n.thread }

// dir is the node's state folder.
func (n *Node) dir() string { return n.layout.Node(n.Name) }

// New makes the namespaces and folders of the node with that index.
func New(run config.Run, layout config.Layout, index int, plan *controlplane.Plan, ca string) (*Node, error) {
	n := &Node{Node: run.Config.Nodes[index], run: run, layout: layout, index: index, plan: plan, ca: ca}
	// Made on this side of the node's mount namespace, so that its sockets can
	// be reached from here.
	if err := sandbox.Tmpfs(n.runDir()); err != nil {
		return nil, err
	}
	if err := n.writeMasks(); err != nil {
		return nil, err
	}
	thread, err := sandbox.NewThread(n.Name, index > 0, n.mounts)
	if err != nil {
		return nil, err
	}
	n.thread = thread
	return n, nil
}

func (n *Node) runDir() string { return filepath.Join(n.dir(), "run") }

// mounts gives the node its own version of the folders that its programs write
// to.
func (n *Node) mounts() error {
	for _, shared := range []string{config.Inside, config.InsideBin} {
		if err := sandbox.BindTree(shared, filepath.Join(n.runDir(), filepath.Base(shared))); err != nil {
			return err
		}
	}
	for _, b := range [][2]string{
		{n.runDir(), "/run"},
		{filepath.Join(n.dir(), "kubelet"), KubeletRoot},
		{filepath.Join(n.dir(), "log"), "/var/log"},
	} {
		if err := makeDir(b[0]); err != nil {
			return err
		}
		if err := sandbox.BindTree(b[0], b[1]); err != nil {
			return err
		}
	}
	return n.mask()
}

// Units returns the node's programs in the order of their needs.
func (n *Node) Units() ([]component.Unit, error) {
	for _, write := range []func() error{n.writeContainerd, n.writeKubelet, n.writeProxy} {
		if err := write(); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := n.plan.Kubeconfig("kubelet-"+n.Name, "system:node:"+n.Name, "system:nodes")
	if err != nil {
		return nil, err
	}
	var labels []string
	for key, value := range n.AllLabels() {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	address := n.run.Network.Node(n.index)
	return []component.Unit{
		{
			Name: n.containerd(),
			Command: &component.Command{
				Path:      filepath.Join(config.InsideBin, "containerd"),
				Args:      []string{"--config=" + n.containerdConfig()},
				Env:       []string{"PATH=" + config.InsideBin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
				Namespace: n.thread,
				Ready:     component.Socket(filepath.Join(n.runDir(), "containerd", "containerd.sock")),
			},
		},
		{
			Name:  n.Kubelet(),
			After: []string{n.containerd(), controlplane.APIServer},
			Command: &component.Command{
				Path: filepath.Join(config.InsideBin, "kubelet"),
				Args: []string{
					"--config=" + n.kubeletConfig(),
					"--kubeconfig=" + kubeconfig,
					"--root-dir=" + KubeletRoot,
					"--hostname-override=" + n.Name,
					"--node-ip=" + address.String(),
					"--node-labels=" + strings.Join(labels, ","),
				},
				Namespace: n.thread,
				Ready:     component.HTTP(fmt.Sprintf("http://%s:%d/healthz", address, kubeletHealth), nil),
			},
		},
		{
			Name:  n.proxy(),
			After: []string{controlplane.APIServer},
			Command: &component.Command{
				Path:      filepath.Join(config.InsideBin, "kube-proxy"),
				Args:      []string{"--config=" + n.proxyConfig()},
				Namespace: n.thread,
				Ready:     component.HTTP(fmt.Sprintf("http://%s:%d/livez", address, proxyHealth), nil),
			},
		},
	}, nil
}

func (n *Node) containerdConfig() string { return filepath.Join(n.dir(), "containerd.toml") }
func (n *Node) kubeletConfig() string    { return filepath.Join(n.dir(), "kubelet.yaml") }
func (n *Node) proxyConfig() string      { return filepath.Join(n.dir(), "kube-proxy.yaml") }
func (n *Node) networkConfig() string    { return filepath.Join(n.dir(), "cni", "10-pods.conflist") }
func (n *Node) mirrors() string          { return filepath.Join(n.dir(), "mirrors") }

func (n *Node) writeContainerd() error {
	registry := fmt.Sprintf("http://%s:%d", n.run.Network.ControlPlane(), config.RegistryPort)
	if err := images.WriteMirrorConfig(n.mirrors(), registry); err != nil {
		return err
	}
	root := filepath.Join(n.dir(), "containerd")
	if err := makeDir(root); err != nil {
		return err
	}
	// Containers' layers cannot lie on a file system that is such a layer
	// itself, as it is where the repository lies in a container.
	if onOverlay(root) {
		if err := sandbox.Tmpfs(root); err != nil {
			return err
		}
	}
	network, err := json.MarshalIndent(n.podNetwork(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode network of %q: %w", n.Name, err)
	}
	if err := config.WriteFile(n.networkConfig(), network, 0o644); err != nil {
		return err
	}
	text := fmt.Sprintf(containerdTemplate, root, containerdSocket,
		images.PauseRef, n.mirrors(), filepath.Join(config.InsideBin, "runc"), config.InsideBin, filepath.Dir(n.networkConfig()))
	return config.WriteFile(n.containerdConfig(), []byte(text), 0o644)
}

const containerdTemplate = `version = 3
root = %q
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q
[plugins."io.containerd.cri.v1.images".registry]
  config_path = %q

[plugins."io.containerd.cri.v1.runtime"]
  # A profile would stay loaded in the machine's kernel.
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE nobody may lower a container's score.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = %q
  SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%q]
  conf_dir = %q
  use_internal_loopback = true
`

// podNetwork is the CNI configuration: a bridge for the node's Pods, with
// routes between the nodes made by package network.
func (n *Node) podNetwork() any {
	type object = map[string]any
	return object{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{
			object{
				"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
				"ipam": object{
					"type":    "host-local",
					"dataDir": "/run/cni",
					"ranges":  []any{[]any{object{"subnet": config.PodSubnet(n.index).String()}}},
					"routes":  []any{object{"dst": "0.0.0.0/0"}},
				},
			},
			object{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
}

func (n *Node) writeKubelet() error {
	type object = map[string]any
	address := n.run.Network.Node(n.index).String()
	resolv := filepath.Join(n.dir(), "resolv.conf")
	// Nothing answers at this address. There is no name service in the cluster,
	// and a question is refused at once instead of waiting for an answer.
	if err := config.WriteFile(resolv, []byte("nameserver "+address+"\noptions attempts:1\n"), 0o644); err != nil {
		return err
	}
	return config.Save(n.kubeletConfig(), object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": n.ca},
		},
		"authorization":            object{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               cgroups.NodeRoot(n.run.Config.ID(), n.Name),
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"healthzBindAddress":       address,
		"healthzPort":              kubeletHealth,
		"resolvConf":               resolv,
		"clusterDNS":               []string{address},
		"clusterDomain":            "cluster.local",
		"oomScoreAdj":              0,
		"serializeImagePulls":      false,
		"registryPullQPS":          0,
		"kubeAPIQPS":               200,
		"kubeAPIBurst":             400,
		"eventRecordQPS":           0,
		// The kubelet stages a volume only after it reported it in use, which it
		// does with its status: by default up to ten seconds for nothing.
		"nodeStatusUpdateFrequency": "500ms",
		"nodeStatusReportFrequency": "5m",
		// The machine's disk is not the node's to clean up.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"evictionHard": object{
			"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
		},
		"featureGates": n.gates(),
	})
}

// gates returns the feature gates as the kubelet's configuration has them.
func (n *Node) gates() map[string]bool {
	gates := map[string]bool{}
	for _, g := range n.run.Config.Gates() {
		name, value, _ := strings.Cut(g, "=")
		gates[name] = value == "true"
	}
	return gates
}

func (n *Node) writeProxy() error {
	type object = map[string]any
	kubeconfig, err := n.plan.Kubeconfig("kube-proxy-"+n.Name, "system:kube-proxy")
	if err != nil {
		return err
	}
	address := n.run.Network.Node(n.index).String()
	return config.Save(n.proxyConfig(), object{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               "iptables",
		"bindAddress":        address,
		"healthzBindAddress": fmt.Sprintf("%s:%d", address, proxyHealth),
		"metricsBindAddress": "127.0.0.1:10249",
		"clientConnection":   object{"kubeconfig": kubeconfig, "qps": 200, "burst": 400},
		"clusterCIDR":        config.PodRange.String(),
		"hostnameOverride":   n.Name,
		"oomScoreAdj":        0,
		// Connection tracking is the machine's; a cluster leaves its settings alone.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"iptables": object{
			"minSyncPeriod": "100ms",
			// Where the kernel does not take bridged packets through the rules, an
			// answer from a Pod on the same bridge must come by way of the node.
			"masqueradeAll": !bridgedPacketsAreFiltered(),
		},
	})
}
