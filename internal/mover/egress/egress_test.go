package egress_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/egress"
)

func TestCheck(t *testing.T) {
	own, err := egress.Parse([]string{"127.0.0.1", "10.1.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	open := egress.Policy{}
	cases := map[string]struct {
		policy  egress.Policy
		address string
		allowed bool
	}{
		"Public4":            {open, "93.184.215.14", true},
		"Public6":            {open, "2606:2800:21f:cb07::1", true},
		"Private":            {open, "10.1.2.3", true},
		"UniqueLocal":        {open, "fd12:3456::1", true},
		"Loopback":           {open, "127.0.0.1", false},
		"LoopbackFar":        {open, "127.9.9.9", false},
		"Loopback6":          {open, "::1", false},
		"Mapped":             {open, "::ffff:127.0.0.1", false},
		"Compatible":         {open, "::7f00:1", false},
		"NAT64":              {open, "64:ff9b::a9fe:a9fe", false},
		"NAT64Public":        {open, "64:ff9b::5db8:d70e", true},
		"6to4":               {open, "2002:7f00:1::", false},
		"Unspecified":        {open, "0.0.0.0", false},
		"ThisNetwork":        {open, "0.1.2.3", false},
		"Unspecified6":       {open, "::", false},
		"Metadata":           {open, "169.254.169.254", false},
		"MetadataAWS6":       {open, "fd00:ec2::254", false},
		"MetadataGoogle6":    {open, "fd20:ce::254", false},
		"MetadataAzure":      {open, "168.63.129.16", false},
		"MetadataAlibaba":    {open, "100.100.100.200", false},
		"MetadataOracle":     {open, "192.0.0.192", false},
		"LinkLocal6":         {open, "fe80::1", false},
		"LinkLocalZone":      {open, "fe80::1%eth0", false},
		"Multicast":          {open, "224.0.0.1", false},
		"Multicast6":         {open, "ff02::1", false},
		"Broadcast":          {open, "255.255.255.255", false},
		"Allowed":            {egress.Policy{Allow: own}, "127.0.0.1", true},
		"AllowedMapped":      {egress.Policy{Allow: own}, "::ffff:127.0.0.1", true},
		"AllowedAlone":       {egress.Policy{Allow: own}, "127.0.0.2", false},
		"Denied":             {egress.Policy{Deny: own}, "10.1.2.3", false},
		"DeniedEmbedded":     {egress.Policy{Deny: own}, "64:ff9b::a01:203", false},
		"AllowedOverridden":  {egress.Policy{Deny: own, Allow: own[1:]}, "10.1.2.3", true},
		"DeniedSpareOutside": {egress.Policy{Deny: own}, "10.2.2.3", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.policy.Check(netip.MustParseAddr(tc.address))
			if (err == nil) != tc.allowed {
				t.Fatalf("Check(%s) = %v, want allowed %t", tc.address, err, tc.allowed)
			}
			if reason, permanent := mover.Classify(err); err != nil && (reason != worker.ReasonAddressNotAllowed || !permanent) {
				t.Errorf("Check(%s) = %v (%s, permanent %t), want %s for good", tc.address, err, reason, permanent, worker.ReasonAddressNotAllowed)
			}
		})
	}
}

// TestDialer dials a name: what counts is the address behind it.
func TestDialer(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := egress.Policy{}.Dialer(time.Minute).DialContext(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	if reason, _ := mover.Classify(err); err == nil || reason != worker.ReasonAddressNotAllowed {
		t.Errorf("dial localhost = %v (%s), want %s", err, reason, worker.ReasonAddressNotAllowed)
	}
	if c != nil {
		_ = c.Close()
	}
	own, err := egress.Parse([]string{"127.0.0.0/8", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	c, err = egress.Policy{Allow: own}.Dialer(time.Minute).DialContext(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatalf("dial localhost that is allowed: %v", err)
	}
	_ = c.Close()
}

func TestParseRefusesNonsense(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.0/33", "localhost", "10.0.0"} {
		if got, err := egress.Parse([]string{bad}); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", bad, got)
		}
	}
}
