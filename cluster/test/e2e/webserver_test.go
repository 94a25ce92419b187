package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Credentials that the web server asks for. Nobody but worker and server may
// ever see them.
const (
	secretPassword = "pa55word-nobody-sees"
	secretToken    = "t0ken-nobody-sees"
	secretHeader   = "h3ader-nobody-sees"
)

// webServer is a web server on the machine that Pods reach.
type webServer struct {
	*httptest.Server
	// authority is the certificate of a server with TLS, in PEM.
	authority string

	mu sync.Mutex
	// seen are the requests by path, with the credentials they brought.
	seen map[string][]string
}

// serve starts a web server with a handler, under TLS if asked.
func serve(t *testing.T, secure bool, handler http.Handler) *webServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.HostAddress, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &webServer{seen: map[string][]string{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen[r.URL.Path] = append(s.seen[r.URL.Path], r.Header.Get("Authorization")+r.Header.Get("X-Token"))
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	if err := s.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.Listener = l
	if secure {
		s.TLS, s.authority = certificate(t, cluster.HostAddress)
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// credentials are those that came with the requests for a path.
func (s *webServer) credentials(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen[path]...)
}

// certificate makes a server certificate that is its own authority.
func certificate(t *testing.T, address string) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(address)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// site is what the archives of the web server hold.
var site = map[string]string{"site/index.html": "<h1>Welcome</h1>\n", "site/docs/about.txt": "About us\n"}

func siteTar(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, content := range site {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func siteZip(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, content := range site {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// content answers with bytes.
func content(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// announcing says that more comes than does.
func announcing(length int64, data string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(length))
		_, _ = w.Write([]byte(data)) // the end of the connection is the point
	}
}

// private answers only with the credentials that are asked for.
func private(check func(*http.Request) bool, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !check(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		then(w, r)
	}
}

func byPassword(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	return user == "ada" && password == secretPassword
}

func byToken(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+secretToken }

func byHeader(r *http.Request) bool { return r.Header.Get("X-Token") == secretHeader }
