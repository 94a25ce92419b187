package network

import (
	"net"
	"net/netip"
	"testing"
)

func TestOverlaps(t *testing.T) {
	range7 := netip.MustParsePrefix("10.89.7.0/24")
	cases := map[string]struct {
		used string
		want bool
	}{
		"the same":          {"10.89.7.0/24", true},
		"one address of it": {"10.89.7.254/32", true},
		"a larger network":  {"10.0.0.0/8", true},
		"the neighbour":     {"10.89.8.0/24", false},
		"another":           {"192.168.0.0/16", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := overlaps(range7, []netip.Prefix{netip.MustParsePrefix(tc.used)}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestPrefix(t *testing.T) {
	_, n, err := net.ParseCIDR("10.1.2.0/23")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := prefix(n); !ok || got.String() != "10.1.2.0/23" {
		t.Errorf("got %v, %t", got, ok)
	}
	if _, ok := prefix(nil); ok {
		t.Error("the default route has no prefix")
	}
	if got := ipNet(netip.MustParseAddr("10.1.2.3"), 24).String(); got != "10.1.2.3/24" {
		t.Errorf("got %s", got)
	}
}
