package populator_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// authority signs certificates.
type authority struct{ tls.Certificate }

func newAuthority(t *testing.T) authority {
	t.Helper()
	return authority{issue(t, nil, "authority")}
}

// issue makes a certificate for a name, signed by an authority, or by itself and
// then one of an authority.
func issue(t *testing.T, by *authority, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if by == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	} else {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func writePEM(t *testing.T, dir, name, kind string, der []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: kind, Bytes: der}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func files(t *testing.T, dir string, own tls.Certificate, clients authority) populator.TLSFiles {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return populator.TLSFiles{
		Cert:     writePEM(t, dir, "tls.crt", "CERTIFICATE", own.Certificate[0]),
		Key:      writePEM(t, dir, "tls.key", "PRIVATE KEY", key),
		ClientCA: writePEM(t, dir, "ca.crt", "CERTIFICATE", clients.Certificate.Certificate[0]),
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestMutualTLS(t *testing.T) {
	servers, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	const host = "hello.vendor.svc"
	dir := t.TempDir()
	tlsFiles := files(t, dir, issue(t, &servers, host), clients)
	tlsFiles.ClientNames = []string{"sluice-manager"}
	address := freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- populator.Serve(ctx, computing(func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) { return nil, nil }),
			populator.MutualTLS(address, tlsFiles), populator.WithLogger(slog.New(slog.DiscardHandler)))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	call := func(t *testing.T, own *tls.Certificate) error {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(servers.Leaf)
		config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: host}
		if own != nil {
			config.Certificates = []tls.Certificate{*own}
		}
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = populatorv1.NewPopulatorClient(conn).GetInfo(ctx, &populatorv1.GetInfoRequest{})
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return err
	}
	manager := issue(t, &clients, "sluice-manager")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C { // until it listens
		err := call(t, &manager)
		if err == nil {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("the manager: %v", err)
		}
	}
	other, stranger := issue(t, &clients, "other"), issue(t, &strangers, "sluice-manager")
	for name, own := range map[string]*tls.Certificate{"no certificate": nil, "another name": &other, "another authority": &stranger} {
		if err := call(t, own); err == nil {
			t.Errorf("a client with %s is served", name)
		}
	}
	servers = newAuthority(t)
	if err := call(t, &manager); err == nil {
		t.Error("the plugin shows a certificate that nobody gave it")
	}
	files(t, dir, issue(t, &servers, host), clients)
	if err := call(t, &manager); err != nil {
		t.Errorf("after the certificate was replaced: %v", err)
	}
}

func TestMutualTLSWithoutFiles(t *testing.T) {
	whole := computing(func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) { return nil, nil })
	err := populator.Serve(t.Context(), whole, populator.MutualTLS("127.0.0.1:0", populator.TLSFiles{Cert: "none", Key: "none", ClientCA: "none"}))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want a word about the file", err)
	}
}
