package http

import (
	"crypto/tls"
	"errors"
	"fmt"
	nethttp "net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/credential"
)

// Keys of a Secret with credentials: those of Kubernetes' own types
// basic-auth and tls, and two more.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyCA       = "ca.crt"
	// prefixHeader begins a key whose rest is the name of a header.
	prefixHeader = "header."
)

// Credentials are sent to one host alone.
type Credentials struct {
	// Username and Password for basic authentication.
	Username, Password string
	// Token for bearer authentication.
	Token string
	// Header holds further headers.
	Header nethttp.Header
	// Certificate of the client.
	Certificate *tls.Certificate
}

// own are headers that are the source's own.
var own = map[string]bool{
	"Host": true, "Connection": true, "Content-Length": true, "Transfer-Encoding": true, "Te": true, "Trailer": true,
	"Upgrade": true, "Range": true, "If-Range": true, "Accept-Encoding": true, "Referer": true,
}

// ReadCredentials reads credentials, and the certificates to trust, out of a
// Secret with the keys username and password, token, header.NAME, tls.crt and
// tls.key, ca.crt; all are optional.
func ReadCredentials(s *credential.Secret) (c Credentials, ca []byte, err error) {
	values := map[string]string{}
	for _, key := range []string{keyUsername, keyPassword, keyToken, keyCert, keyKey, keyCA} {
		value, ok, err := s.Get(key)
		if err != nil {
			return Credentials{}, nil, err
		}
		if ok {
			values[key] = string(value)
		}
	}
	c = Credentials{Username: values[keyUsername], Password: values[keyPassword], Token: values[keyToken], Header: nethttp.Header{}}
	if c.Token != "" && c.Username != "" {
		return Credentials{}, nil, unusable(fmt.Errorf("there are both %s and %s", keyUsername, keyToken))
	}
	if !httpguts.ValidHeaderFieldValue(c.Token) {
		return Credentials{}, nil, unusable(fmt.Errorf("%s holds characters that no header may hold", keyToken))
	}
	if (values[keyCert] == "") != (values[keyKey] == "") {
		return Credentials{}, nil, unusable(fmt.Errorf("there is only one of %s and %s", keyCert, keyKey))
	}
	if values[keyCert] != "" {
		pair, err := tls.X509KeyPair([]byte(values[keyCert]), []byte(values[keyKey]))
		if err != nil {
			return Credentials{}, nil, unusable(fmt.Errorf("%s and %s are no pair: %w", keyCert, keyKey, err))
		}
		c.Certificate = &pair
	}
	if err := readHeaders(s, c.Header); err != nil {
		return Credentials{}, nil, err
	}
	return c, []byte(values[keyCA]), nil
}

func readHeaders(s *credential.Secret, into nethttp.Header) error {
	keys, err := s.Keys(prefixHeader)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	for _, key := range keys {
		value, _, err := s.Get(key)
		if err != nil {
			return err //nolint:wrapcheck // it says what it is about
		}
		name := nethttp.CanonicalHeaderKey(strings.TrimPrefix(key, prefixHeader))
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return unusable(fmt.Errorf("%q names no header", key))
		case own[name]:
			return unusable(fmt.Errorf("%q names a header that cannot be set", key))
		case !httpguts.ValidHeaderFieldValue(string(value)):
			return unusable(fmt.Errorf("%q holds characters that no header may hold", key))
		}
		into.Set(name, string(value))
	}
	return nil
}

func unusable(err error) error {
	return mover.Permanent(worker.ReasonSourceForbidden, fmt.Errorf("read credentials: %w", err))
}

// apply puts the credentials into a request.
func (c *Credentials) apply(r *nethttp.Request) {
	for name, values := range c.Header {
		r.Header[name] = values
	}
	switch {
	case c.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.Token)
	case c.Username != "" || c.Password != "":
		r.SetBasicAuth(c.Username, c.Password)
	}
}

var errNoCertificates = errors.New("read CA: it holds no certificate in PEM")
