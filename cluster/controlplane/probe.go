package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/cluster/component"
)

// ready asks the API server whether all of its start-up work is done, the
// default roles included, so that nobody who comes after is refused.
func (p *Plan) ready() (component.Probe, error) {
	pem, err := os.ReadFile(p.authority.CAFile())
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read authority %q: no certificate in it", p.authority.CAFile())
	}
	return component.HTTP(p.Server()+"/readyz", &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), nil
}

// anyCertificate is for programs that make up a certificate of their own on
// the loopback address of the cluster's network namespace.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // see above
}
