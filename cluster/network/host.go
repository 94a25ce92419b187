// Package network connects a cluster: a bridge in the cluster's own network
// namespace, the nodes on it, and one link to the machine. On the machine
// itself nothing is made but the end of that link: no bridge, no packet filter
// rule, no route beyond the link's own.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/sluice-dev/sluice/cluster/config"
)

// Names of links inside a cluster.
const (
	bridge = "sluice0"
	uplink = "uplink"
)

// HostLinkPrefix begins the name of every link that a cluster has on the
// machine; its index follows.
const HostLinkPrefix = "sluice-"

// Attach connects the network namespace of process pid to this machine and
// returns the range that it got: the first of 10.89.<index>.0/24 that nothing
// on the machine uses. Making the link is what takes the index, so clusters
// that start at the same time, of whatever user or checkout, differ. The link
// goes away with the namespace. owner is noted as the link's alias.
func Attach(pid int, owner string) (config.Network, error) {
	taken, err := usedRanges()
	if err != nil {
		return config.Network{}, err
	}
	for index := range config.MaxIndex {
		n := config.Network{Index: index}
		if overlaps(n.Prefix(), taken) {
			continue
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = HostLinkPrefix + strconv.Itoa(index)
		link := &netlink.Veth{LinkAttrs: attrs, PeerName: uplink, PeerNamespace: netlink.NsPid(pid)}
		if err := netlink.LinkAdd(link); errors.Is(err, syscall.EEXIST) {
			continue
		} else if err != nil {
			return n, fmt.Errorf("make link %q: %w", attrs.Name, err)
		}
		if err := up(attrs.Name, n.Host(), n.Prefix().Bits()); err != nil {
			return n, errors.Join(err, netlink.LinkDel(link))
		}
		if err := netlink.LinkSetAlias(link, owner); err != nil {
			return n, errors.Join(fmt.Errorf("note owner of link %q: %w", attrs.Name, err), netlink.LinkDel(link))
		}
		return n, nil
	}
	return config.Network{}, fmt.Errorf("find an address range: all of 10.89.0.0/24 to 10.89.%d.0/24 are in use; stop a cluster", config.MaxIndex-1)
}

// HostLinks returns the links on this machine that belong to clusters, by
// name, with their owner.
func HostLinks() (map[string]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	out := map[string]string{}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, HostLinkPrefix) || l.Attrs().Name == bridge {
			out[l.Attrs().Name] = l.Attrs().Alias
		}
	}
	return out, nil
}

// Detach removes the link to the machine from the cluster's side. It would go
// with the namespace, but only some time after the last process.
func Detach() error { return RemoveLink(uplink) }

// RemoveLink removes a link by name; one that is gone is no error.
func RemoveLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %q: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("remove link %q: %w", name, err)
	}
	return nil
}

// usedRanges returns what this machine's addresses and routes cover, the
// default route excepted.
func usedRanges() ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var used []netip.Prefix
	for _, r := range routes {
		if p, ok := prefix(r.Dst); ok && p.Bits() > 0 {
			used = append(used, p)
		}
	}
	return used, nil
}

func overlaps(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if u.Overlaps(p) {
			return true
		}
	}
	return false
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones), ok
}

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, 32)}
}

// up gives a link an address and switches it on.
func up(name string, addr netip.Addr, bits int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %q: %w", name, err)
	}
	if addr.IsValid() {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr, bits)}); err != nil {
			return fmt.Errorf("give %s to link %q: %w", addr, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switch link %q on: %w", name, err)
	}
	return nil
}
