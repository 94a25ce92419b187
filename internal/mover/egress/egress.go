// Package egress decides which addresses a mover may talk to. Whoever may
// create a source can make a worker call any address in the cluster's network,
// so those that no source has any business with are refused: the worker's own
// host, its link, and the metadata services of clouds, which hand out
// credentials to whoever asks.
//
// The decision is made on the address that is dialled, after its name was
// resolved: a name that resolves differently the second time changes nothing.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// Policy says which addresses are refused. The zero value refuses those of
// the host, the link, multicast and metadata services.
type Policy struct {
	// Allow is allowed in spite of what is refused by default and by Deny.
	Allow []netip.Prefix
	// Deny is refused as well.
	Deny []netip.Prefix
}

// refused are the addresses that no source has any business with.
var refused = []struct {
	what  string
	which []netip.Prefix
}{
	{"an unspecified address", prefixes("0.0.0.0/8", "::/128")},
	{"a loopback address", prefixes("127.0.0.0/8", "::1/128")},
	// The metadata services of most clouds are at 169.254.169.254.
	{"a link-local address", prefixes("169.254.0.0/16", "fe80::/10")},
	{"a multicast or broadcast address", prefixes("224.0.0.0/4", "255.255.255.255/32", "ff00::/8")},
	{"the address of a metadata service", prefixes(
		"fd00:ec2::254/128",  // AWS
		"fd20:ce::254/128",   // Google Cloud
		"168.63.129.16/32",   // Azure
		"100.100.100.200/32", // Alibaba Cloud
		"192.0.0.192/32",     // Oracle Cloud
	)},
}

// Prefixes of IPv6 addresses that stand for an IPv4 address, and where in them
// that is.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},        // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64, RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4, RFC 3056
}

// Check returns an error with reason AddressNotAllowed for an address that is
// refused.
func (p Policy) Check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if within(p.Allow, a) {
		return nil
	}
	if within(p.Deny, a) {
		return notAllowed(a, "refused by the administrator")
	}
	for _, r := range refused {
		if within(r.which, a) {
			return notAllowed(a, r.what)
		}
	}
	for _, e := range embedding {
		if !a.Is4() && e.prefix.Contains(a) {
			b := a.As16()
			return p.Check(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return nil
}

// CheckHost checks a host that is written as an address; a name is checked
// when it is dialled. It is for hosts that a proxy would dial.
func (p Policy) CheckHost(host string) error {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	return p.Check(a)
}

// Dialer returns a dialer that connects to allowed addresses only.
func (p Policy) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return mover.Permanent(worker.ReasonAddressNotAllowed, fmt.Errorf("dial %s %q: no address", network, address))
			}
			return p.Check(ap.Addr())
		},
	}
}

// Parse reads a list of addresses and prefixes, such as 10.0.0.0/8.
func Parse(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, item := range list {
		if a, err := netip.ParseAddr(item); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(item)
		if err != nil {
			return nil, fmt.Errorf("read address %q: want an address or a prefix such as 10.0.0.0/8", item)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func notAllowed(a netip.Addr, why string) error {
	return mover.Permanent(worker.ReasonAddressNotAllowed, fmt.Errorf("address %s is not allowed: it is %s", a, why))
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
