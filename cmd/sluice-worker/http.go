package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/sluice-dev/sluice/internal/mover/archive"
	"github.com/sluice-dev/sluice/internal/mover/credential"
	"github.com/sluice-dev/sluice/internal/mover/egress"
	"github.com/sluice-dev/sluice/internal/mover/retry"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/http"
)

// maxCA bounds the file of certificates.
const maxCA = 1 << 20

// httpFlags are the flags of the command http that need more than a copy.
type httpFlags struct {
	opts         http.Options
	target       dir.Options
	fileMode     mode
	extract      bool
	archive      archive.Options
	format       string
	credentials  string
	requireOffer string
	caFiles      list
	allow, deny  list
	retry        retry.Policy
}

// openHTTP is the command http.
func openHTTP(args []string, c call, j *job) error {
	s := newSettings("http", "Fetches one file, or what is in one archive, into the volume.", c)
	s.Var((*onMissing)(&j.run), "on-missing", missingUsage)
	f := &httpFlags{}
	f.declare(s)
	if err := s.parse(args, c.env); err != nil {
		return err
	}
	if err := f.complete(); err != nil {
		return err
	}
	f.opts.Log = c.log
	if f.extract {
		f.opts.Extract = &f.archive
	}
	from, err := http.New(f.opts)
	if err != nil {
		return usageError{err}
	}
	j.from = from
	if err := j.openTarget(c, f.target); err != nil {
		return err
	}
	if sink, ok := j.to.(*dir.Sink); ok {
		f.archive.Scratch = sink.Scratch
	}
	return nil
}

func (f *httpFlags) declare(s *settings) {
	s.StringVar(&f.opts.URL, "url", "", "`URL` of the file, http or https")
	s.StringVar(&f.opts.Digest, "digest", "", "digest that the file must have, `sha256:…` or sha512:…")
	s.StringVar(&f.opts.FileName, "file-name", "", "`name` of the file on the volume (default: the last part of the URL)")
	s.Var(&f.fileMode, "file-mode", "permissions of the file, in `octal` digits (default 0644)")

	s.BoolVar(&f.extract, "extract", false, "put what is in the archive instead of the archive")
	s.StringVar(&f.format, "format", "Auto", "`format` of the archive: Auto, Tar or Zip; compression is always found out")
	s.StringVar(&f.archive.SubPath, "sub-path", "", "`path` in the archive: only what is there is put, without the path")
	s.IntVar(&f.archive.StripComponents, "strip-components", 0, "leading `parts` to take off each name")
	s.BoolVar(&f.archive.SkipUnsupported, "skip-unsupported", false, "leave out devices, pipes and links that leave the volume, instead of failing")
	s.Int64Var(&f.archive.MaxEntries, "max-entries", archive.DefaultMaxEntries, "`entries` that an archive may have")
	s.BoolVar(&f.target.Ownership, "ownership", false, "restore owners; the worker must run as root")
	s.BoolVar(&f.target.SpecialBits, "special-bits", false, "keep set-user-ID, set-group-ID and sticky bits")
	s.BoolVar(&f.target.ReadBack, "read-back", false, "read every file again from the volume and compare it")

	s.StringVar(&f.credentials, "credentials", "", "`directory` with a mounted Secret: username and password, token, header.NAME, tls.crt and tls.key, ca.crt")
	s.StringVar(&f.requireOffer, "require-offer", "", "use the Secret only if its key "+credential.OfferKey+" offers it to this `kind`, such as HTTPSource.sluice.dev")
	s.Var(&f.caFiles, "ca-file", "`files` with certificates in PEM to trust beside the system's; may be empty")

	s.StringVar(&f.opts.Proxy, "proxy", "", "`URL` of a proxy; the usual environment variables have no say")
	s.StringVar(&f.opts.NoProxy, "no-proxy", "", "`hosts` that are reached without the proxy, as in NO_PROXY")
	s.IntVar(&f.opts.MaxRedirects, "max-redirects", http.DefaultMaxRedirects, "redirects to follow; -1 for none")
	s.Var(&f.allow, "allow-address", "`prefixes` that may be talked to although they are loopback, link-local, multicast or a metadata service")
	s.Var(&f.deny, "deny-address", "`prefixes` that may not be talked to either")
	s.DurationVar(&f.opts.ConnectTimeout, "connect-timeout", http.DefaultConnectTimeout, "how long connecting may take")
	s.DurationVar(&f.opts.HeaderTimeout, "header-timeout", http.DefaultHeaderTimeout, "how long an answer may take to begin")
	s.DurationVar(&f.opts.StallTimeout, "stall-timeout", http.DefaultStallTimeout, "how long no data may come before the connection is given up")
	s.DurationVar(&f.retry.Budget, "retry-budget", 0, "how long a server that fails is tried again (default 2m0s)")
}

// complete turns flags into options.
func (f *httpFlags) complete() error {
	f.opts.FileMode, f.opts.Retry = fs.FileMode(f.fileMode), f.retry
	switch f.format {
	case "Auto":
	case string(archive.Tar), string(archive.Zip):
		f.archive.Format = archive.Format(f.format)
	default:
		return usageError{fmt.Errorf("read format: it is %q, want Auto, Tar or Zip", f.format)}
	}
	if f.archive.StripComponents < 0 {
		return usageError{errors.New("read strip-components: it is negative")}
	}
	var err error
	if f.opts.Addresses.Allow, err = egress.Parse(f.allow); err != nil {
		return usageError{err}
	}
	if f.opts.Addresses.Deny, err = egress.Parse(f.deny); err != nil {
		return usageError{err}
	}
	for _, name := range f.caFiles {
		pem, err := readBounded(name, maxCA)
		if err != nil {
			return usageError{fmt.Errorf("read CA: %w", err)}
		}
		if pem = bytes.TrimSpace(pem); len(pem) > 0 {
			f.opts.CA = append(append(f.opts.CA, pem...), '\n')
		}
	}
	return f.readCredentials()
}

func (f *httpFlags) readCredentials() (err error) {
	if f.credentials == "" {
		return nil
	}
	secret, err := credential.Open(f.credentials)
	if err != nil {
		return usageError{err}
	}
	defer func() { err = errors.Join(err, secret.Close()) }()
	if f.requireOffer != "" {
		host := ""
		if u, err := url.Parse(f.opts.URL); err == nil {
			host = u.Hostname()
		}
		if err := secret.Offered(f.requireOffer, host); err != nil {
			return err //nolint:wrapcheck // it says what it is about
		}
	}
	var ca []byte
	if f.opts.Credentials, ca, err = http.ReadCredentials(secret); err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	if len(ca) > 0 {
		f.opts.CA = append(append(f.opts.CA, '\n'), ca...)
	}
	return nil
}
