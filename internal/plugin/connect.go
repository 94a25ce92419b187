package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Bounds of messages; the contract states them.
const (
	maxRequest  = 4 << 20
	maxResponse = 1 << 20
)

// An Identity is the certificate that the manager shows to plugins.
type Identity interface {
	// GetClientCertificate is for tls.Config.
	GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// Connections are the connections to the plugins of all Populators. They are
// made when first needed, and made anew when they break.
type Connections struct {
	identity Identity
	dial     func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	open map[types.UID]*connection
}

type connection struct {
	generation int64
	conn       *grpc.ClientConn
}

// NewConnections returns Connections that show an identity where TLS asks for
// one. dial opens connections; nil is a net.Dialer.
func NewConnections(identity Identity, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Connections {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Connections{identity: identity, dial: dial, open: map[types.UID]*connection{}}
}

// To returns a client of the plugin of a Populator.
func (c *Connections) To(p *v1alpha1.Populator) (populatorv1.PopulatorClient, error) {
	if p.Spec.Plugin == nil {
		return nil, fmt.Errorf("populator %q has no plugin", p.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have, ok := c.open[p.UID]
	if ok && have.generation == p.Generation {
		return populatorv1.NewPopulatorClient(have.conn), nil
	}
	conn, err := c.connect(p.Spec.Plugin)
	if err != nil {
		return nil, err
	}
	if ok {
		_ = have.conn.Close() // calls under way end with an error, and are repeated
	}
	c.open[p.UID] = &connection{generation: p.Generation, conn: conn}
	return populatorv1.NewPopulatorClient(conn), nil
}

// Close ends the connection to the plugin of a Populator that is gone.
func (c *Connections) Close(populator types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.open[populator]; ok {
		_ = have.conn.Close() // nobody is left to tell
		delete(c.open, populator)
	}
}

func (c *Connections) connect(p *v1alpha1.Plugin) (*grpc.ClientConn, error) {
	network, address := "unix", p.Socket
	creds := insecure.NewCredentials()
	authority := "localhost"
	if s := p.Service; s != nil {
		config, host, err := c.tls(s)
		if err != nil {
			return nil, err
		}
		port := s.Port
		if port == 0 {
			port = 9443
		}
		network, address, authority = "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))), host
		creds = credentials.NewTLS(config)
	}
	// The dialer resolves the name each time it connects: behind a Service the
	// address is the Service's, and a proxy of the environment is not for it.
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(creds),
		grpc.WithAuthority(authority),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx, network, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse), grpc.MaxCallSendMsgSize(maxRequest)),
		grpc.WithMaxHeaderListSize(16<<10),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("sluice-manager"),
		grpc.WithStatsHandler(witness{}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to plugin %q: %w", address, err)
	}
	return conn, nil
}

// tls is the configuration for a Service: its certificate is for the Service's
// name, and signed by the Populator's bundle and nobody else.
func (c *Connections) tls(s *v1alpha1.PluginService) (*tls.Config, string, error) {
	host := s.Name + "." + s.Namespace + ".svc"
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CABundle) {
		return nil, "", errors.New("spec.plugin.service.caBundle: holds no PEM certificate")
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              roots,
		ServerName:           host,
		GetClientCertificate: c.identity.GetClientCertificate,
	}, host, nil
}
