package config

import "net/netip"

// Ports that the cluster listens on at Network.ControlPlane.
const (
	APIServerPort = 6443
	RegistryPort  = 5000
)

// Network is the cluster's slice of 10.89.0.0/16: 10.89.<index>.0/24. It is
// the only address range that the host sees.
type Network struct {
	// Index is unique among the clusters that run on this machine.
	Index int `json:"index"`
}

// MaxIndex is the largest index of a cluster on one machine.
const MaxIndex = 250

// Prefix returns the range.
func (n Network) Prefix() netip.Prefix {
	return netip.PrefixFrom(n.addr(0), 24)
}

// ControlPlane returns the address of the API server, the registry and the
// first node.
func (n Network) ControlPlane() netip.Addr { return n.Node(0) }

// Node returns the address of the node with that index (0 = first).
func (n Network) Node(index int) netip.Addr { return n.addr(byte(index + 1)) }

// Host returns the address at which the cluster reaches the machine it runs
// on, for example a webhook served by a Go test.
func (n Network) Host() netip.Addr { return n.addr(254) }

func (n Network) addr(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 89, byte(n.Index), last})
}
