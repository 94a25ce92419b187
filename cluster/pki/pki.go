// Package pki makes the certificates, keys and kubeconfigs of a cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/cluster/config"
)

// validity is how long certificates hold: longer than any cluster is kept.
const validity = 365 * 24 * time.Hour

// Authority signs the certificates of one cluster and keeps them in a folder.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// New makes an authority and writes its certificate to CAFile.
func New(dir string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "sluice-cluster-ca"})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	a := &Authority{dir: dir, cert: cert, key: key}
	return a, config.WriteFile(a.CAFile(), encode("CERTIFICATE", der), 0o644)
}

// CAFile is the authority's certificate.
func (a *Authority) CAFile() string { return filepath.Join(a.dir, "ca.crt") }

// Pair names a certificate's and its key's file.
type Pair struct{ Cert, Key string }

// Serving makes a server's certificate for its names and addresses.
func (a *Authority) Serving(name string, hosts []string, addrs []netip.Addr) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return Pair{}, err
	}
	template.DNSNames = hosts
	for _, addr := range addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.write(name, template)
}

// Client makes a client's certificate for a user and its groups.
func (a *Authority) Client(name, user string, groups ...string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.write(name, template)
}

// SigningKey makes a bare key pair, for service account tokens: Cert is the
// public key.
func (a *Authority) SigningKey(name string) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode public key of %q: %w", name, err)
	}
	pair := Pair{Cert: filepath.Join(a.dir, name+".pub"), Key: filepath.Join(a.dir, name+".key")}
	if err := config.WriteFile(pair.Cert, encode("PUBLIC KEY", public), 0o644); err != nil {
		return Pair{}, err
	}
	return pair, writeKey(pair.Key, key)
}

// Kubeconfig makes a client's certificate for a user and its groups, and
// writes a kubeconfig with it to path. It holds the certificate itself, so it
// may be used wherever it is copied.
func (a *Authority) Kubeconfig(path, server, cluster, user string, groups ...string) error {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key, err := a.sign(template)
	if err != nil {
		return err
	}
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {
			Server: server, CertificateAuthorityData: encode("CERTIFICATE", a.cert.Raw),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig of %q: %w", user, err)
	}
	return config.WriteFile(path, data, 0o600)
}

func (a *Authority) write(name string, template *x509.Certificate) (Pair, error) {
	cert, key, err := a.sign(template)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{Cert: filepath.Join(a.dir, name+".crt"), Key: filepath.Join(a.dir, name+".key")}
	if err := config.WriteFile(pair.Cert, cert, 0o644); err != nil {
		return Pair{}, err
	}
	return pair, config.WriteFile(pair.Key, key, 0o600)
}

// sign returns certificate and key in PEM.
func (a *Authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %q: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of %q: %w", template.Subject.CommonName, err)
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", keyDER), nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	// An hour back, for machines whose clock is set while the cluster runs.
	begin := time.Now().Add(-time.Hour)
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    begin,
		NotAfter:     begin.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key %q: %w", path, err)
	}
	return config.WriteFile(path, encode("EC PRIVATE KEY", der), 0o600)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
