package http_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/credential"
	"github.com/sluice-dev/sluice/internal/mover/egress"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/source/http"
)

// secretDir is a directory with one file for each key.
func secretDir(t *testing.T, values map[string]string) *credential.Secret {
	t.Helper()
	base := t.TempDir()
	for key, value := range values {
		if err := os.WriteFile(filepath.Join(base, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := credential.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pair is a certificate for a client, signed by itself, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "worker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// seen is what one server heard.
type seen struct {
	Authorization, Header, Referer, Certificate string
}

func hear(r *nethttp.Request) seen {
	s := seen{Authorization: r.Header.Get("Authorization"), Header: r.Header.Get("X-Api-Key"), Referer: r.Header.Get("Referer")}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		s.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return s
}

// serveTLS is a server that asks for a certificate but does not insist.
func serveTLS(t *testing.T, handler nethttp.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func authority(servers ...*httptest.Server) []byte {
	var out []byte
	for _, s := range servers {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})...)
	}
	return out
}

// TestCredentialsStayHome follows a redirect to another host and one back.
func TestCredentialsStayHome(t *testing.T) {
	cert, key := pair(t)
	for name, tc := range map[string]struct {
		secret map[string]string
		want   seen
	}{
		"Basic":       {map[string]string{"username": "u", "password": "s3cret\n"}, seen{Authorization: "Basic dTpzM2NyZXQ="}},
		"Token":       {map[string]string{"token": "s3cret"}, seen{Authorization: "Bearer s3cret"}},
		"Header":      {map[string]string{"header.X-Api-Key": "s3cret", "token": "t"}, seen{Authorization: "Bearer t", Header: "s3cret"}},
		"Certificate": {map[string]string{"tls.crt": cert, "tls.key": key}, seen{Certificate: "worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			var home, away, back seen
			var homeURL string
			other := serveTLS(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
				away = hear(r)
				nethttp.Redirect(w, r, homeURL+"/back", nethttp.StatusFound)
			})
			origin := serveTLS(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if r.URL.Path == "/back" {
					back = hear(r)
					send(w, data, len(data))
					return
				}
				home = hear(r)
				nethttp.Redirect(w, r, other.URL+"/away", nethttp.StatusTemporaryRedirect)
			})
			homeURL = origin.URL
			credentials, _, err := http.ReadCredentials(secretDir(t, tc.secret))
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			_, _, err = fill(t, http.Options{
				URL: origin.URL + "/f?signature=s3cret", Addresses: loopback, Credentials: credentials,
				CA: authority(origin, other), Log: slog.New(slog.NewTextHandler(&log, nil)),
			}, runner.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]seen{tc.want, {}, tc.want}, []seen{home, away, back}); diff != "" {
				t.Errorf("heard at home, away and back home: -want +got\n%s", diff)
			}
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("the log tells the secret:\n%s", log.String())
			}
		})
	}
}

func TestReadCredentialsRefuses(t *testing.T) {
	cert, _ := pair(t)
	_, otherKey := pair(t)
	for name, secret := range map[string]map[string]string{
		"Both": {"username": "u", "token": "s3cret"}, "HalfPair": {"tls.crt": cert}, "NoPair": {"tls.crt": cert, "tls.key": otherKey},
		"TokenLines": {"token": "s3cret\nX: y"}, "HeaderLines": {"header.X": "s3cret\r\nY: z"}, "HeaderName": {"header.": "s3cret"},
		"Host": {"header.host": "s3cret"}, "Range": {"header.range": "s3cret"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := http.ReadCredentials(secretDir(t, secret))
			if reason, permanent := mover.Classify(err); err == nil || reason != worker.ReasonSourceForbidden || !permanent || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("ReadCredentials = %v (%s), want %s and no secret", err, reason, worker.ReasonSourceForbidden)
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	plain := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, data, len(data)) })
	redirect := func(s func(*nethttp.Request) string) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, r *nethttp.Request) {
			w.Header().Set("Location", s(r))
			w.WriteHeader(nethttp.StatusFound)
		}
	}
	to := func(url string) nethttp.HandlerFunc { return redirect(func(*nethttp.Request) string { return url }) }
	count := 0
	cases := map[string]struct {
		reason string
		serve  nethttp.HandlerFunc
		max    int
		fails  string
	}{
		"Loop":      {"redirects in a circle end", redirect(func(r *nethttp.Request) string { return r.URL.Path }), 0, worker.ReasonSourceUnreachable},
		"None":      {"none are followed if so asked", to("/other"), -1, worker.ReasonSourceUnreachable},
		"Few":       {"a few are", redirect(func(*nethttp.Request) string { count++; return fmt.Sprintf("/%d", count) }), 3, worker.ReasonSourceUnreachable},
		"Downgrade": {"https does not become http", to(plain.URL), 0, worker.ReasonAddressNotAllowed},
		"Metadata":  {"nor a way to a metadata service", to("https://169.254.169.254/latest/meta-data"), 0, worker.ReasonAddressNotAllowed},
		"Mapped":    {"however it is written", to("https://[::ffff:169.254.169.254]/"), 0, worker.ReasonAddressNotAllowed},
		"Scheme":    {"nor to a file", to("file:///etc/passwd"), 0, worker.ReasonAddressNotAllowed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := serveTLS(t, tc.serve)
			_, _, err := fill(t, http.Options{URL: s.URL, Addresses: loopback, CA: authority(s), MaxRedirects: tc.max}, runner.Options{})
			if reason, permanent := mover.Classify(err); err == nil || reason != tc.fails || !permanent {
				t.Errorf("%s: Run = %v (%s, permanent %t), want %s for good", tc.reason, err, reason, permanent, tc.fails)
			}
		})
	}
}

// TestAddresses asks for a server of this very host, which is not allowed: by
// address, by name, and through a redirect from a host that is.
func TestAddresses(t *testing.T) {
	heard := false
	s := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { heard = true; send(w, data, len(data)) })
	here := strings.Replace(s.URL, "127.0.0.1", "127.0.0.2", 1)
	named := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	door := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) { nethttp.Redirect(w, r, here, nethttp.StatusFound) })
	only, err := egress.Parse([]string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]http.Options{
		"Address": {URL: s.URL}, "Name": {URL: named}, "Redirect": {URL: door.URL, Addresses: egress.Policy{Allow: only}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := fill(t, opts, runner.Options{})
			if reason, permanent := mover.Classify(err); err == nil || reason != worker.ReasonAddressNotAllowed || !permanent || heard {
				t.Errorf("Run = %v (%s), server heard of it: %t; want %s", err, reason, heard, worker.ReasonAddressNotAllowed)
			}
		})
	}
}

func TestUnknownAuthority(t *testing.T) {
	s := serveTLS(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { send(w, data, len(data)) })
	_, _, err := fill(t, http.Options{URL: s.URL, Addresses: loopback}, runner.Options{})
	if reason, permanent := mover.Classify(err); err == nil || reason != worker.ReasonSourceUnreachable || permanent {
		t.Errorf("Run = %v (%s), want %s for now", err, reason, worker.ReasonSourceUnreachable)
	}
}

// TestProxy reaches a host that only the proxy knows.
func TestProxy(t *testing.T) {
	var asked []string
	proxy := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		asked = append(asked, r.URL.String())
		send(w, data, len(data))
	})
	opts := http.Options{URL: "http://files.example/f", Addresses: loopback, Proxy: proxy.URL, NoProxy: "direct.example,10.0.0.0/8"}
	if _, _, err := fill(t, opts, runner.Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"http://files.example/f"}, asked); diff != "" {
		t.Errorf("asked of the proxy: -want +got\n%s", diff)
	}
	opts.URL = "http://169.254.169.254/f"
	if _, _, err := fill(t, opts, runner.Options{}); err == nil || len(asked) != 1 {
		t.Errorf("Run of %s = %v, proxy asked for %v; want it not to be asked", opts.URL, err, asked)
	}
}
