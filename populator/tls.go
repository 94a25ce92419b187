package populator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// TLSFiles are PEM files of a plugin behind a Service, as cert-manager and other
// issuers lay them into a Secret. They are read again when they change.
type TLSFiles struct {
	// Cert and Key are the plugin's own. The certificate names the Service as
	// Sluice calls it: name.namespace.svc.
	Cert, Key string
	// ClientCA signs the certificate by which Sluice's manager proves itself.
	ClientCA string
	// ClientNames are the DNS names that a client's certificate may have; one is
	// enough. Without any, every certificate of ClientCA is let in.
	ClientNames []string
}

// MutualTLS listens on a TCP address such as ":9443", for a plugin behind a
// Service; the Populator then says spec.plugin.service. Only clients with a
// certificate are served.
func MutualTLS(address string, files TLSFiles) Endpoint {
	return &tlsEndpoint{address: address, files: files}
}

type tlsEndpoint struct {
	address string
	files   TLSFiles

	mu     sync.Mutex
	config *tls.Config
	stamp  [3]time.Time
}

func (e *tlsEndpoint) String() string { return "tls:" + e.address }

func (e *tlsEndpoint) listen(ctx context.Context) (net.Listener, credentials.TransportCredentials, error) {
	if _, err := e.current(); err != nil {
		return nil, nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", e.address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return l, credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return e.current()
		},
	}), nil
}

// current returns the configuration of the files as they are, which are looked at
// for each connection: the manager keeps one for long. Files that cannot
// be read, or do not fit each other while they are being replaced, leave the last
// good ones in force.
func (e *tlsEndpoint) current() (*tls.Config, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stamp, err := e.stamps()
	if err == nil && e.config != nil && stamp == e.stamp {
		return e.config, nil
	}
	var config *tls.Config
	if err == nil {
		config, err = e.load()
	}
	if err == nil {
		e.config, e.stamp = config, stamp
	}
	if e.config == nil {
		return nil, err
	}
	return e.config, nil
}

func (e *tlsEndpoint) stamps() (stamp [3]time.Time, err error) {
	for i, name := range []string{e.files.Cert, e.files.Key, e.files.ClientCA} {
		info, err := os.Stat(name)
		if err != nil {
			return stamp, fmt.Errorf("look at certificate: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

func (e *tlsEndpoint) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(e.files.Cert, e.files.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	pem, err := os.ReadFile(e.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read authority of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authority of clients %q holds no certificate", e.files.ClientCA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		NextProtos:   []string{"h2"},
		// A session that is resumed would outlive its certificate.
		SessionTicketsDisabled: true,
		VerifyConnection:       e.verify,
	}, nil
}

// verify looks at the name of a client whose certificate is good.
func (e *tlsEndpoint) verify(state tls.ConnectionState) error {
	if len(e.files.ClientNames) == 0 {
		return nil
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("client has no certificate")
	}
	for _, name := range state.PeerCertificates[0].DNSNames {
		if slices.Contains(e.files.ClientNames, name) {
			return nil
		}
	}
	return fmt.Errorf("client %q is none of those that may call", state.PeerCertificates[0].DNSNames)
}
