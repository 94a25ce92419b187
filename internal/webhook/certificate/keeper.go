package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sluice-dev/sluice/internal/manager"
)

// Names of the objects, all made by the chart.
const (
	// SecretName is the Secret in the manager's namespace.
	SecretName = "sluice-webhook-certificates"

	// ServiceName is the Service that API servers reach the webhooks by.
	ServiceName = "sluice-webhooks"

	// ConfigurationName is that of the webhook configurations, validating and
	// mutating, as far as they exist.
	ConfigurationName = "sluice"
)

// retryAfter is the pause after a step that failed, lookAfter the longest time
// that passes without a look at everything.
const (
	retryAfter = 2 * time.Second
	lookAfter  = time.Hour
)

// settle is how long a new certificate is held back after it was made, while
// there is an old one to serve: until then the last API server has heard of the
// new authority.
const settle = 10 * time.Second

// Options are what a Keeper needs to know.
type Options struct {
	// Namespace of the Secret and the Service.
	Namespace string

	// Hosts are the names and addresses that webhooks are called by; by default
	// the Service's.
	Hosts []string

	// Configuration is the name of the webhook configurations; by default
	// ConfigurationName.
	Configuration string

	// Now is the clock; by default time.Now.
	Now func() time.Time

	// Log is told of renewals and failures.
	Log logr.Logger
}

// A Keeper keeps the certificate of a webhook server. It runs on every replica.
type Keeper struct {
	clients kubernetes.Interface
	Options

	mu     sync.RWMutex
	served *tls.Certificate
}

// New returns a Keeper that serves nothing yet.
func New(clients kubernetes.Interface, o Options) *Keeper {
	if len(o.Hosts) == 0 {
		o.Hosts = []string{ServiceName + "." + o.Namespace + ".svc"}
	}
	if o.Configuration == "" {
		o.Configuration = ConfigurationName
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{clients: clients, Options: o}
}

// Server returns a webhook server that serves the Keeper's certificate.
func (k *Keeper) Server(host string, port int) webhook.Server {
	return webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS13
		c.GetCertificate = k.GetCertificate
	}}})
}

// Setup runs the Keeper in the manager, and lets the manager be ready only
// when its webhooks can be called.
func (k *Keeper) Setup(_ context.Context, p manager.Parts) error {
	if p.Options.Webhooks == nil {
		return nil
	}
	if err := p.Manager.Add(k); err != nil {
		return fmt.Errorf("add keeper of certificates: %w", err)
	}
	if err := p.Manager.AddReadyzCheck("certificate", k.Ready); err != nil {
		return fmt.Errorf("add readiness probe: %w", err)
	}
	if err := p.Manager.AddReadyzCheck("webhooks", p.Manager.GetWebhookServer().StartedChecker()); err != nil {
		return fmt.Errorf("add readiness probe: %w", err)
	}
	return nil
}

// NeedLeaderElection says that the Keeper runs on replicas that do not lead:
// all of them answer webhooks.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is for tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.served == nil {
		return nil, errors.New("the webhooks have no certificate yet")
	}
	return k.served, nil
}

// Ready is a readiness probe: it fails while there is nothing to serve.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.GetCertificate(nil)
	return err
}

// Start keeps the certificate until ctx ends: it looks whenever the Secret or
// a configuration changes, and in time for renewals.
func (k *Keeper) Start(ctx context.Context) error {
	changed, err := k.watch(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		again, err := k.step(ctx)
		switch {
		case ctx.Err() != nil: // and the step failed for it
		case apierrors.IsConflict(err):
			again = 0 // another replica was faster: look at what it did
		case err != nil:
			k.Log.Error(err, "keep certificate of webhooks")
			again = retryAfter
		}
		timer := time.NewTimer(max(again, 10*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-changed:
		}
		timer.Stop()
	}
	return nil
}

// step looks at everything once and writes what is missing. It returns when to
// look again if nothing changes.
func (k *Keeper) step(ctx context.Context) (time.Duration, error) {
	secret, err := k.clients.CoreV1().Secrets(k.Namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("get Secret %q: %w", k.Namespace+"/"+SecretName, err)
	}
	now := k.Now()
	p := pairOf(secret)
	candidate, err := check(p, k.Hosts, now)
	if err != nil || ends(p, candidate).Sub(now) < renewal {
		if secret, err = k.renew(ctx, secret, now); err != nil {
			return 0, err
		}
		p = pairOf(secret)
		if candidate, err = check(p, k.Hosts, now); err != nil {
			return 0, err
		}
	}
	if err := k.publish(ctx, p.bundle); err != nil {
		return 0, err
	}
	if wait := issued(candidate).Add(settle).Sub(now); wait > 0 && k.serves(now) {
		return wait, nil
	}
	k.serve(candidate)
	return min(ends(p, candidate).Sub(now)-renewal+time.Second, lookAfter), nil
}

// renew writes a new certificate into the Secret, on the condition that nobody
// else did meanwhile.
func (k *Keeper) renew(ctx context.Context, secret *corev1.Secret, now time.Time) (*corev1.Secret, error) {
	p, err := issue(k.Hosts, authorities(secret.Data[corev1.ServiceAccountRootCAKey]), now)
	if err != nil {
		return nil, err
	}
	secret = secret.DeepCopy()
	secret.Data = map[string][]byte{
		corev1.ServiceAccountRootCAKey: p.bundle,
		corev1.TLSCertKey:              p.cert,
		corev1.TLSPrivateKeyKey:        p.key,
	}
	written, err := k.clients.CoreV1().Secrets(k.Namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("update Secret %q: %w", k.Namespace+"/"+SecretName, err)
	}
	k.Log.Info("renewed the certificate of the webhooks", "until", now.Add(lifetime))
	return written, nil
}

// serves says whether there is a certificate to serve until a new one is known
// to all.
func (k *Keeper) serves(now time.Time) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.served != nil && now.Add(settle).Before(k.served.Leaf.NotAfter)
}

// serve makes a certificate the one that new connections get.
func (k *Keeper) serve(c *tls.Certificate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.served == nil || !bytes.Equal(k.served.Certificate[0], c.Certificate[0]) {
		k.served = c
	}
}

func pairOf(s *corev1.Secret) pair {
	return pair{bundle: s.Data[corev1.ServiceAccountRootCAKey], cert: s.Data[corev1.TLSCertKey], key: s.Data[corev1.TLSPrivateKeyKey]}
}
