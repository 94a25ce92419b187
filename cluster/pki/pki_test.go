package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func newAuthority(t *testing.T) (*Authority, *x509.CertPool) {
	t.Helper()
	a, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(a.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the authority's file holds no certificate")
	}
	return a, pool
}

// leaf returns the certificate of a pair, after checking that the key fits.
func leaf(t *testing.T, cert, key []byte) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestServing(t *testing.T) {
	a, pool := newAuthority(t)
	pair, err := a.Serving("server", []string{"kubernetes"}, []netip.Addr{netip.MustParseAddr("10.89.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	c := leaf(t, read(t, pair.Cert), read(t, pair.Key))
	for _, host := range []string{"kubernetes", "10.89.0.1"} {
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: "elsewhere"}); err == nil {
		t.Error("it holds for another name, too")
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err == nil {
		t.Error("a server's certificate serves as a client's")
	}
}

func TestKubeconfig(t *testing.T) {
	a, pool := newAuthority(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := a.Kubeconfig(path, "https://10.89.0.1:6443", "sluice", "system:node:n", "system:nodes"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v, want 0600, because it holds a key", info.Mode(), err)
	}
	got, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://10.89.0.1:6443" {
		t.Errorf("host: got %q", got.Host)
	}
	c := leaf(t, got.CertData, got.KeyData)
	if diff := cmp.Diff([]string{"system:node:n", "system:nodes"}, append([]string{c.Subject.CommonName}, c.Subject.Organization...)); diff != "" {
		t.Errorf("user and groups, -want +got:\n%s", diff)
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Error(err)
	}
}

func TestAuthoritiesDiffer(t *testing.T) {
	a, _ := newAuthority(t)
	_, other := newAuthority(t)
	pair, err := a.Client("client", "admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c := leaf(t, read(t, pair.Cert), read(t, pair.Key))
	if _, err := c.Verify(x509.VerifyOptions{Roots: other, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("one cluster's administrator is another's, too")
	}
}
