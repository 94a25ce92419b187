package network

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/sandbox"
)

// SetUp makes the cluster's bridge, with the uplink on it, in the network
// namespace of the caller, which holds the control plane and the first node.
// Without nodes nothing more is needed.
func SetUp(n config.Network, nodes int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	if err := onBridge(uplink); err != nil {
		return err
	}
	if err := up("lo", netip.Addr{}, 0); err != nil {
		return err
	}
	if err := up(bridge, n.ControlPlane(), n.Prefix().Bits()); err != nil {
		return err
	}
	if nodes == 0 {
		return nil
	}
	return setUpNode(n, 0, nodes, bridge)
}

// AttachNode connects the thread of the node with that index (1 = second) to
// the cluster's bridge. The caller is in the cluster's network namespace.
func AttachNode(n config.Network, index, nodes int, thread *sandbox.Thread) error {
	ns, err := thread.NetworkNamespace()
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer ns.Close() //nolint:errcheck // only a reference

	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("node%d", index+1)
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: uplink, PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make link %q: %w", attrs.Name, err)
	}
	if err := onBridge(attrs.Name); err != nil {
		return err
	}
	return thread.Run(func() error {
		if err := up("lo", netip.Addr{}, 0); err != nil {
			return err
		}
		if err := up(uplink, n.Node(index), n.Prefix().Bits()); err != nil {
			return err
		}
		return setUpNode(n, index, nodes, uplink)
	})
}

func onBridge(name string) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %q: %w", name, err)
	}
	if err := netlink.LinkSetMaster(link, master); err != nil {
		return fmt.Errorf("put link %q on the bridge: %w", name, err)
	}
	return up(name, netip.Addr{}, 0)
}

// setUpNode makes a node's network namespace forward between its Pods and the
// others: routes to the other nodes' Pods, a route for Services so that the
// kernel gets as far as kube-proxy's rules, and masquerading for what leaves
// the cluster.
func setUpNode(n config.Network, index, nodes int, device string) error {
	settings := map[string]string{
		"net/ipv4/ip_forward": "1",
		// A Pod that reaches itself or a neighbour through a Service must be
		// answered through kube-proxy's rules. Absent where the kernel has no
		// br_netfilter.
		"net/bridge/bridge-nf-call-iptables": "1",
	}
	for name, value := range settings {
		err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find link %q: %w", device, err)
	}
	services := &netlink.Route{
		LinkIndex: link.Attrs().Index,
		Scope:     netlink.SCOPE_LINK,
		Dst:       ipNet(config.ServiceRange.Addr(), config.ServiceRange.Bits()),
	}
	if err := netlink.RouteAdd(services); err != nil {
		return fmt.Errorf("add route to services: %w", err)
	}
	for other := range nodes {
		if other == index {
			continue
		}
		pods := config.PodSubnet(other)
		route := &netlink.Route{
			LinkIndex: link.Attrs().Index,
			Dst:       ipNet(pods.Addr(), pods.Bits()),
			Gw:        n.Node(other).AsSlice(),
			// The other node may not be up yet.
			Flags: int(netlink.FLAG_ONLINK),
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("add route to %s: %w", pods, err)
		}
	}
	pods := config.PodRange.String()
	out, err := exec.Command("iptables", "-w", "-t", "nat", "-A", "POSTROUTING",
		"-s", pods, "!", "-d", pods, "-o", device, "-j", "MASQUERADE").CombinedOutput()
	if err != nil {
		return fmt.Errorf("masquerade pods: %w: %s", err, out)
	}
	return nil
}
