package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const namespace = "sluice-system"

// cluster is what the chart leaves behind: an empty Secret and configurations
// without an authority.
func cluster() *fake.Clientset {
	return fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a.sluice.dev"}, {Name: "b.sluice.dev"}},
		},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "c.sluice.dev"}},
		},
	)
}

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func keeper(t *testing.T, c *fake.Clientset, now *clock) *Keeper {
	t.Helper()
	return New(c, Options{Namespace: namespace, Now: now.Now, Log: testr.New(t)})
}

func mustStep(t *testing.T, k *Keeper) time.Duration {
	t.Helper()
	again, err := k.step(t.Context())
	if err != nil {
		t.Fatalf("step: %v", err)
	}
	return again
}

func served(t *testing.T, k *Keeper) *tls.Certificate {
	t.Helper()
	c, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bundles returns the authorities that API servers check each webhook with.
func bundles(t *testing.T, c *fake.Clientset) [][]byte {
	t.Helper()
	v, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, w := range v.Webhooks {
		out = append(out, w.ClientConfig.CABundle)
	}
	for _, w := range m.Webhooks {
		out = append(out, w.ClientConfig.CABundle)
	}
	return out
}

// mustTrust fails unless every API server trusts what is served.
func mustTrust(t *testing.T, c *fake.Clientset, k *Keeper, now time.Time) {
	t.Helper()
	leaf := served(t, k).Leaf
	for i, b := range bundles(t, c) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(b)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "sluice-webhooks.sluice-system.svc", CurrentTime: now}); err != nil {
			t.Fatalf("webhook %d: %v", i, err)
		}
	}
}

func TestFirstStep(t *testing.T) {
	c, now := cluster(), newClock()
	k := keeper(t, c, now)
	if err := k.Ready(nil); err == nil {
		t.Error("Ready without a certificate, want an error")
	}
	mustStep(t, k)
	mustTrust(t, c, k, now.now)
	if err := k.Ready(nil); err != nil {
		t.Errorf("Ready with a certificate: %v", err)
	}
}

func TestReplicasAgree(t *testing.T) {
	c, now := cluster(), newClock()
	a, b := keeper(t, c, now), keeper(t, c, now)
	mustStep(t, a)
	mustStep(t, b)
	if !bytes.Equal(served(t, a).Certificate[0], served(t, b).Certificate[0]) {
		t.Error("two replicas serve different certificates")
	}
	writes := 0
	for _, action := range c.Actions() {
		if action.GetVerb() == "update" {
			writes++
		}
	}
	if writes != 3 {
		t.Errorf("two replicas made %d writes, want 3: the Secret and two configurations, once", writes)
	}
}

func TestSettledKeeperWritesNothing(t *testing.T) {
	c, now := cluster(), newClock()
	k := keeper(t, c, now)
	mustStep(t, k)
	c.ClearActions()
	mustStep(t, k)
	for _, a := range c.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("a second look made a request %q %q, want reads only", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestRenewal walks through a renewal on two replicas: at every moment each of
// them serves what all API servers trust.
func TestRenewal(t *testing.T) {
	c, now := cluster(), newClock()
	a, b := keeper(t, c, now), keeper(t, c, now)
	mustStep(t, a)
	mustStep(t, b)
	first := served(t, a).Certificate[0]

	now.now = now.now.Add(lifetime - renewal - time.Minute)
	if again := mustStep(t, a); again > time.Minute+time.Second {
		t.Errorf("a minute before the renewal the next look is after %v, want a minute", again)
	}
	if !bytes.Equal(served(t, a).Certificate[0], first) {
		t.Fatal("the certificate was renewed too early")
	}

	now.now = now.now.Add(2 * time.Minute)
	again := mustStep(t, a)
	mustStep(t, b)
	for _, k := range []*Keeper{a, b} {
		if !bytes.Equal(served(t, k).Certificate[0], first) {
			t.Error("a new certificate is served before every API server can have heard of its authority")
		}
		mustTrust(t, c, k, now.now)
	}
	for i, bundle := range bundles(t, c) {
		if n := len(authorities(bundle)); n != 2 {
			t.Errorf("webhook %d trusts %d authorities during the renewal, want the new and the old one", i, n)
		}
	}

	now.now = now.now.Add(again)
	mustStep(t, b)
	if bytes.Equal(served(t, b).Certificate[0], first) {
		t.Error("the old certificate is still served after the new one has settled")
	}
	// For a moment the replicas differ; both are trusted.
	mustTrust(t, c, a, now.now)
	mustTrust(t, c, b, now.now)
	mustStep(t, a)
	if !bytes.Equal(served(t, a).Certificate[0], served(t, b).Certificate[0]) {
		t.Error("two replicas serve different certificates after a renewal")
	}

	// The old authority leaves the bundle at the renewal after its end.
	now.now = now.now.Add(lifetime - renewal + time.Minute)
	mustStep(t, a)
	for i, bundle := range bundles(t, c) {
		if n := len(authorities(bundle)); n != 2 {
			t.Errorf("webhook %d trusts %d authorities after two renewals, want 2", i, n)
		}
	}
}

func TestBrokenSecretIsReplaced(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(map[string][]byte)
	}{
		"Empty":    {"A Secret that lost its data is filled again.", func(d map[string][]byte) { clear(d) }},
		"Garbage":  {"So is one with garbage.", func(d map[string][]byte) { d["tls.crt"] = []byte("x") }},
		"OtherKey": {"A key of another certificate is no use.", func(d map[string][]byte) { p, _ := issue([]string{"x"}, nil, newClock().now); d["tls.key"] = p.key }},
		"NoBundle": {"Nor is a certificate without authority.", func(d map[string][]byte) { delete(d, "ca.crt") }},
		"OtherCA":  {"Or with another's.", func(d map[string][]byte) { p, _ := issue([]string{"x"}, nil, newClock().now); d["ca.crt"] = p.bundle }},
		"OtherHost": {"Or for another host.", func(d map[string][]byte) {
			p, _ := issue([]string{"x"}, nil, newClock().now)
			d["ca.crt"], d["tls.crt"], d["tls.key"] = p.bundle, p.cert, p.key
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, now := cluster(), newClock()
			mustStep(t, keeper(t, c, now))
			s, err := c.CoreV1().Secrets(namespace).Get(t.Context(), SecretName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before := s.DeepCopy()
			tc.change(s.Data)
			if _, err := c.CoreV1().Secrets(namespace).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			k := keeper(t, c, now)
			mustStep(t, k)
			mustTrust(t, c, k, now.now)
			after, err := c.CoreV1().Secrets(namespace).Get(t.Context(), SecretName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(before.Data["tls.crt"], after.Data["tls.crt"]) {
				t.Errorf("%s\nthe certificate was not replaced", tc.reason)
			}
		})
	}
}

func TestLostBundleIsRestored(t *testing.T) {
	c, now := cluster(), newClock()
	k := keeper(t, c, now)
	mustStep(t, k)
	v, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v.Webhooks[1].ClientConfig.CABundle = nil
	if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustStep(t, k)
	mustTrust(t, c, k, now.now)
}

func TestNothingIsServedUntilItIsTrusted(t *testing.T) {
	c, now := cluster(), newClock()
	refuse := true
	c.PrependReactor("update", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, errors.New("refused")
	})
	k := keeper(t, c, now)
	if _, err := k.step(t.Context()); err == nil {
		t.Fatal("step succeeded although a configuration could not be written")
	}
	if err := k.Ready(nil); err == nil {
		t.Error("a certificate is served that an API server does not trust")
	}
	refuse = false
	mustStep(t, k)
	mustTrust(t, c, k, now.now)
}

// TestStart holds that a replica that loses the race for a renewal takes what
// the other wrote, and that changes are seen without waiting for a clock.
func TestStart(t *testing.T) {
	c, now := cluster(), newClock()
	k := keeper(t, c, now)
	lost := false
	c.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lost {
			return false, nil, nil
		}
		lost = true
		p, err := issue(k.Hosts, nil, now.now)
		if err != nil {
			t.Error(err)
		}
		// The other replica's write, past the lock that this one holds.
		if err := c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName},
			Data:       map[string][]byte{"ca.crt": p.bundle, "tls.crt": p.cert, "tls.key": p.key},
		}, namespace); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, SecretName, errors.New("changed"))
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Start(ctx) }()
	await(t, func() bool { return k.Ready(nil) == nil })
	mustTrust(t, c, k, now.now)

	v, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v.Webhooks[0].ClientConfig.CABundle = nil
	if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(ctx, v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return bundles(t, c)[0] != nil })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start: %v", err)
	}
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal("gave up waiting")
		}
	}
}
