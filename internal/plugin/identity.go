package plugin

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
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Names of the objects that hold the manager's identity towards plugins, both in
// its namespace and made by the chart.
const (
	// SecretName is the Secret with the authority and the certificate, and with
	// the keys of both.
	SecretName = "sluice-plugin-client"
	// ConfigMapName is the ConfigMap with the authority alone, under ca.crt, for
	// plugins to trust.
	ConfigMapName = "sluice-plugin-clients"
)

// Keys in these objects, beside those of a TLS Secret.
const (
	keyAuthority    = "ca.crt"
	keyAuthorityKey = "ca.key"
)

const (
	// authorityLifetime is long: plugins' owners copy the authority, in another
	// namespace or another cluster's tool, and must not have to do so often.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	clientLifetime    = 90 * 24 * time.Hour
	// clientRenewal is how long before its end a certificate is replaced.
	clientRenewal = 30 * 24 * time.Hour
	clockSkew     = time.Hour

	// identityAgain is the pause after a failure, identityLook the longest time
	// without a look at the objects.
	identityAgain = 2 * time.Second
	identityLook  = time.Hour
)

// fieldManager owns what the Keeper writes.
const fieldManager = "sluice-plugin"

// A Keeper keeps the certificate that the manager shows to plugins: signed by an
// authority of its own that it makes once, so that a plugin can trust exactly
// this manager, whatever other certificates a cluster has.
type Keeper struct {
	clients   kubernetes.Interface
	namespace string
	now       func() time.Time
	log       logr.Logger

	mu    sync.RWMutex
	shown *tls.Certificate
}

// NewKeeper returns a Keeper that shows nothing yet.
func NewKeeper(clients kubernetes.Interface, namespace string, now func() time.Time, log logr.Logger) *Keeper {
	return &Keeper{clients: clients, namespace: namespace, now: now, log: log}
}

// GetClientCertificate implements Identity.
func (k *Keeper) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.shown == nil {
		return nil, errors.New("the manager has no certificate for plugins yet")
	}
	return k.shown, nil
}

// Start keeps the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := identityLook
		err := k.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // whatever failed did so because the manager stops
		case apierrors.IsConflict(err):
			wait = 10 * time.Millisecond // somebody else was faster
		case err != nil:
			k.log.Error(err, "keep certificate for plugins")
			wait = identityAgain
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Look looks at the Secret once, makes what is missing or about to end, and
// publishes the authority.
func (k *Keeper) Look(ctx context.Context) error {
	secret, err := k.clients.CoreV1().Secrets(k.namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Secret %q: %w", k.namespace+"/"+SecretName, err)
	}
	data, changed, err := renewed(secret.Data, k.now())
	if err != nil {
		return err
	}
	if changed {
		secret = secret.DeepCopy()
		secret.Data = data
		if _, err := k.clients.CoreV1().Secrets(k.namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("update Secret %q: %w", k.namespace+"/"+SecretName, err)
		}
		k.log.Info("renewed the certificate for plugins", "until", k.now().Add(clientLifetime))
	}
	if err := k.publish(ctx, data[keyAuthority]); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("read certificate for plugins: %w", err)
	}
	k.mu.Lock()
	k.shown = &pair
	k.mu.Unlock()
	return nil
}

// publish writes the authority where plugins' owners find it.
func (k *Keeper) publish(ctx context.Context, authority []byte) error {
	config, err := k.clients.CoreV1().ConfigMaps(k.namespace).Get(ctx, ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get ConfigMap %q: %w", k.namespace+"/"+ConfigMapName, err)
	}
	if config.Data[keyAuthority] == string(authority) {
		return nil
	}
	config = config.DeepCopy()
	config.Data = map[string]string{keyAuthority: string(authority)}
	if _, err := k.clients.CoreV1().ConfigMaps(k.namespace).Update(ctx, config, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("update ConfigMap %q: %w", k.namespace+"/"+ConfigMapName, err)
	}
	return nil
}

// renewed returns what the Secret should hold, and whether that is news.
func renewed(data map[string][]byte, now time.Time) (map[string][]byte, bool, error) {
	authority, err := tls.X509KeyPair(data[keyAuthority], data[keyAuthorityKey])
	fresh := err != nil || authority.Leaf.NotAfter.Sub(now) < clientRenewal || now.Before(authority.Leaf.NotBefore)
	if !fresh {
		roots := x509.NewCertPool()
		roots.AddCert(authority.Leaf)
		client, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
		if err == nil {
			_, err = client.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		}
		if err == nil && client.Leaf.NotAfter.Sub(now) >= clientRenewal {
			return data, false, nil
		}
	}
	out := map[string][]byte{keyAuthority: data[keyAuthority], keyAuthorityKey: data[keyAuthorityKey]}
	if fresh {
		cert, key, err := sign(template("sluice plugin clients authority", now, authorityLifetime, true), nil)
		if err != nil {
			return nil, false, fmt.Errorf("make authority for plugins: %w", err)
		}
		out[keyAuthority], out[keyAuthorityKey] = cert, key
		if authority, err = tls.X509KeyPair(cert, key); err != nil {
			return nil, false, fmt.Errorf("read authority for plugins: %w", err)
		}
	}
	cert, key, err := sign(template("sluice-manager", now, clientLifetime, false), &authority)
	if err != nil {
		return nil, false, fmt.Errorf("make certificate for plugins: %w", err)
	}
	out[corev1.TLSCertKey], out[corev1.TLSPrivateKeyKey] = cert, key
	return out, true, nil
}

func template(name string, now time.Time, lifetime time.Duration, authority bool) *x509.Certificate {
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
	}
	if authority {
		t.IsCA, t.MaxPathLenZero, t.KeyUsage = true, true, x509.KeyUsageCertSign
		return t
	}
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	t.DNSNames = []string{name}
	return t
}

// sign makes a key and a certificate for it, by an authority or by itself.
func sign(t *x509.Certificate, by *tls.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	parent, signer := t, any(private)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, private.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	var certOut, keyOut bytes.Buffer
	if err := errors.Join(
		pem.Encode(&certOut, &pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.Encode(&keyOut, &pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	); err != nil {
		return nil, nil, err
	}
	return certOut.Bytes(), keyOut.Bytes(), nil
}
