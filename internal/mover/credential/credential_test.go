package credential_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/credential"
)

// mounted writes a Secret the way the kubelet does.
func mounted(t *testing.T, values map[string]string) *credential.Secret {
	t.Helper()
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "..2026"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026", filepath.Join(base, "..data")); err != nil {
		t.Fatal(err)
	}
	for key, value := range values {
		if err := os.WriteFile(filepath.Join(base, "..2026", key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(base, key)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := credential.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestGet(t *testing.T) {
	s := mounted(t, map[string]string{"token": "t0ken\n", "password": "a\nb\r\n", "header.X-A": "1", "header.X-B": "2"})
	for key, want := range map[string]string{"token": "t0ken", "password": "a\nb", "header.X-A": "1"} {
		got, ok, err := s.Get(key)
		if err != nil || !ok || string(got) != want {
			t.Errorf("Get(%q) = %q, %t, %v, want %q", key, got, ok, err, want)
		}
	}
	if got, ok, err := s.Get("username"); err != nil || ok {
		t.Errorf("Get of what is not there = %q, %t, %v", got, ok, err)
	}
	if _, _, err := s.Get("../escape"); err == nil {
		t.Error("Get outside of the directory = nil, want an error")
	}
	keys, err := s.Keys("header.")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"header.X-A", "header.X-B"}, keys); diff != "" {
		t.Errorf("Keys: -want +got\n%s", diff)
	}
}

func TestOffered(t *testing.T) {
	const kind = "HTTPSource.sluice.dev"
	cases := map[string]struct {
		reason string
		offer  string
		host   string
		want   bool
	}{
		"None":      {reason: "no offer is no offer", host: "h"},
		"AnyHost":   {reason: "a kind without hosts", offer: "Other.x\n" + kind + "\n", host: "h", want: true},
		"Host":      {reason: "a host that is named", offer: kind + " a.example H", host: "h", want: true},
		"OtherHost": {reason: "a host that is not", offer: kind + " a.example", host: "h"},
		"OtherKind": {reason: "a kind that is not", offer: "Other.x h", host: "h"},
		"Prefix":    {reason: "a name that only begins alike", offer: kind + ".evil", host: "h"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"token": "t0ken"}
			if tc.offer != "" {
				values[credential.OfferKey] = tc.offer
			}
			err := mounted(t, values).Offered(kind, tc.host)
			if (err == nil) != tc.want {
				t.Fatalf("%s: Offered = %v, want %t", tc.reason, err, tc.want)
			}
			if err == nil {
				return
			}
			if reason, permanent := mover.Classify(err); reason != worker.ReasonSecretNotOffered || !permanent || strings.Contains(err.Error(), "t0ken") {
				t.Errorf("%s: Offered = %v (%s)", tc.reason, err, reason)
			}
		})
	}
}
