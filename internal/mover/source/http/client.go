package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

const (
	// readBuffer is the buffer between a connection and its reader, who reads
	// past it when he asks for more.
	readBuffer = 64 << 10
	// maxHeader bounds the header of an answer.
	maxHeader = 256 << 10
)

// newClient returns the client that all requests go through.
func (s *Source) newClient() (*nethttp.Client, error) {
	plain, err := s.newTransport(nil)
	if err != nil {
		return nil, err
	}
	guard := &guard{origin: s.url, credentials: &s.opts.Credentials, elsewhere: plain, home: plain}
	if cert := s.opts.Credentials.Certificate; cert != nil {
		// A client certificate is given to whoever asks for one, so other hosts
		// get a transport that has none.
		if guard.home, err = s.newTransport(cert); err != nil {
			return nil, err
		}
	}
	return &nethttp.Client{Transport: guard, CheckRedirect: s.checkRedirect}, nil
}

func (s *Source) newTransport(cert *tls.Certificate) (*nethttp.Transport, error) {
	proxy, err := proxyFunc(s.opts.Proxy, s.opts.NoProxy)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	if len(s.opts.CA) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(s.opts.CA) {
			return nil, errNoCertificates
		}
	}
	// One large body is fastest over HTTP/1.1: no frames, no second window.
	protocols := new(nethttp.Protocols)
	protocols.SetHTTP1(true)
	return &nethttp.Transport{
		Protocols:              protocols,
		Proxy:                  proxy,
		DialContext:            s.opts.Addresses.Dialer(s.opts.ConnectTimeout).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    s.opts.ConnectTimeout,
		ResponseHeaderTimeout:  s.opts.HeaderTimeout,
		DisableCompression:     true,
		ReadBufferSize:         readBuffer,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    1,
	}, nil
}

// proxyFunc returns what chooses the proxy of a request; the environment has
// no say.
func proxyFunc(proxy, noProxy string) (func(*nethttp.Request) (*url.URL, error), error) {
	if proxy == "" {
		return nil, nil //nolint:nilnil // no proxy is what Transport takes nil for
	}
	u, err := url.Parse(proxy)
	if err != nil || u.Host == "" {
		return nil, errors.New("read proxy: want a URL such as http://proxy.example:3128")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return nil, fmt.Errorf("read proxy: its scheme is %q, want http, https or socks5", u.Scheme)
	}
	choose := (&httpproxy.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: noProxy}).ProxyFunc()
	return func(r *nethttp.Request) (*url.URL, error) { return choose(r.URL) }, nil
}

// checkRedirect says whether a redirect is followed. Its address is checked
// when it is dialled; where a proxy dials, this is all that can be checked.
func (s *Source) checkRedirect(r *nethttp.Request, via []*nethttp.Request) error {
	from := via[len(via)-1].URL
	switch {
	case len(via) > s.opts.MaxRedirects:
		return mover.Permanent(worker.ReasonSourceUnreachable, fmt.Errorf("there are more than %d redirects", max(s.opts.MaxRedirects, 0)))
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return mover.Permanent(worker.ReasonAddressNotAllowed, fmt.Errorf("%s redirects to the scheme %q", shown(from), r.URL.Scheme))
	case from.Scheme == "https" && r.URL.Scheme == "http":
		return mover.Permanent(worker.ReasonAddressNotAllowed, fmt.Errorf("%s redirects from https to http", shown(from)))
	}
	return s.opts.Addresses.CheckHost(r.URL.Hostname()) //nolint:wrapcheck // it says what it is about
}

// guard gives credentials to requests to one host, and takes them from others.
type guard struct {
	origin          *url.URL
	credentials     *Credentials
	home, elsewhere nethttp.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	r = r.Clone(r.Context())
	// The client sends the URL it came from, with its query, which may be a
	// signature.
	r.Header.Del("Referer")
	r.Header.Del("Authorization")
	if sameOrigin(r.URL, g.origin) {
		g.credentials.apply(r)
		return g.home.RoundTrip(r) //nolint:wrapcheck // a RoundTripper's errors are its client's
	}
	return g.elsewhere.RoundTrip(r) //nolint:wrapcheck // a RoundTripper's errors are its client's
}

// CloseIdleConnections is called by the client.
func (g *guard) CloseIdleConnections() {
	for _, t := range []nethttp.RoundTripper{g.home, g.elsewhere} {
		if t, ok := t.(*nethttp.Transport); ok {
			t.CloseIdleConnections()
		}
	}
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(hostPort(a), hostPort(b))
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.TrimSuffix(u.Hostname(), "."), port)
}
