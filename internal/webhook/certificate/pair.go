package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// lifetime of a certificate and its authority.
	lifetime = 90 * 24 * time.Hour

	// renewal is how long before its end a certificate is replaced.
	renewal = 30 * 24 * time.Hour

	// skew is by how much the clocks of replicas and API servers may differ.
	skew = time.Hour
)

const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// A pair is what the Secret holds: PEM texts.
type pair struct {
	bundle, cert, key []byte
}

// issue makes an authority, lets it sign one certificate for the hosts, and
// throws its key away. former are authorities that stay in the bundle.
func issue(hosts []string, former []*x509.Certificate, now time.Time) (pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key of authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key: %w", err)
	}
	ca, err := certificateTemplate("sluice webhooks authority", now)
	if err != nil {
		return pair{}, err
	}
	ca.IsCA, ca.BasicConstraintsValid, ca.MaxPathLenZero = true, true, true
	ca.KeyUsage = x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return pair{}, fmt.Errorf("make authority: %w", err)
	}
	// Read back, it has the key identifier that the certificate refers to.
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return pair{}, fmt.Errorf("read authority: %w", err)
	}
	leaf, err := certificateTemplate("sluice webhooks", now)
	if err != nil {
		return pair{}, err
	}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return pair{}, fmt.Errorf("make certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("write key: %w", err)
	}
	bundle := encode(blockCertificate, caDER)
	for _, c := range former {
		if now.Before(c.NotAfter) {
			bundle = append(bundle, encode(blockCertificate, c.Raw)...)
		}
	}
	return pair{bundle: bundle, cert: encode(blockCertificate, der), key: encode(blockKey, keyDER)}, nil
}

func certificateTemplate(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// authorities reads a bundle; what is no certificate is skipped.
func authorities(bundle []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == blockCertificate {
			out = append(out, c)
		}
	}
}

// check parses a pair and says why it cannot be served at the time: it does not
// belong together, does not cover the hosts, or is about to end.
func check(p pair, hosts []string, now time.Time) (*tls.Certificate, error) {
	served, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	trusted := authorities(p.bundle)
	if len(trusted) == 0 {
		return nil, errors.New("the bundle holds no authority")
	}
	roots := x509.NewCertPool()
	roots.AddCert(trusted[0])
	leaf := served.Leaf
	for _, h := range hosts {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: roots, CurrentTime: now}); err != nil {
			return nil, fmt.Errorf("verify certificate for %q: %w", h, err)
		}
	}
	return &served, nil
}

// ends is when the first of the authority and the certificate ends.
func ends(p pair, served *tls.Certificate) time.Time {
	end := served.Leaf.NotAfter
	if trusted := authorities(p.bundle); len(trusted) > 0 && trusted[0].NotAfter.Before(end) {
		end = trusted[0].NotAfter
	}
	return end
}

// issued is when a certificate was made.
func issued(c *tls.Certificate) time.Time { return c.Leaf.NotBefore.Add(skew) }
