package population

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/pki"
	"github.com/sluice-dev/sluice/cluster/simulate"
	sdk "github.com/sluice-dev/sluice/populator"
)

// TestPluginBehindAService has both sides show a certificate. The manager, which
// runs outside of the cluster here, finds the Service's name in a file of hosts.
func TestPluginBehindAService(t *testing.T) {
	const host = "storage.vendor.svc"
	identity := metav1.ObjectMeta{Namespace: systemNamespace, Name: "sluice-plugin-client"}
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "sluice-plugin-clients"}}
	for _, o := range []client.Object{&corev1.Secret{ObjectMeta: identity}, published} { // as the chart does
		create(t, o)
		t.Cleanup(func() { gone(t, o) })
	}
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost "+host+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	startManagerWith(t, hosts)
	s := alone(t)

	var trusted string
	eventually(t, soon, "the manager publishes whom plugins are to trust", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(published), published); err != nil {
			return err
		}
		if trusted = published.Data["ca.crt"]; trusted == "" {
			return fmt.Errorf("data are %v", published.Data)
		}
		return nil
	})
	clientCA := filepath.Join(dir, "clients.crt")
	if err := os.WriteFile(clientCA, []byte(trusted), 0o644); err != nil {
		t.Fatal(err)
	}
	vendor, err := pki.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := vendor.Serving("plugin", []string{host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(vendor.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	storage := newStorage()
	p := &pluginProgram[greeting]{plugin: storage.plugin(s), endpoint: sdk.MutualTLS(fmt.Sprintf("127.0.0.1:%d", port), sdk.TLSFiles{
		Cert: pair.Cert, Key: pair.Key, ClientCA: clientCA, ClientNames: []string{"sluice-manager"},
	})}
	p.start(t)
	s.populator(t, nil, filledBy(&v1alpha1.Plugin{Service: &v1alpha1.PluginService{
		Namespace: "vendor", Name: "storage", Port: int32(port), CABundle: bundle, //nolint:gosec // a port
	}}))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, soon)
	if jobs := storage.of(s.namespace, claim.Name); len(jobs) != 1 || !jobs[0].handedOver {
		t.Errorf("the storage has jobs %+v, want one that was handed over", jobs)
	}
	if got := warningsOn(t, claim); len(got) > 0 {
		t.Errorf("the claim has events %q, want no Warning", got)
	}
}

// freePort is a port of this machine that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // the network is tcp
	return port, l.Close()
}
