package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/credential"
)

// openOffered is the command offered. It copies nothing: it looks into every
// Secret that a worker of another image is to read, before that worker starts.
func openOffered(args []string, c call, j *job) error {
	s := newSettings("offered", "Looks whether Secrets are offered to a kind of source, and fills nothing.", c)
	secrets := s.String("secrets", "", "`directory` with one directory for each Secret, named like it")
	kind := s.String("require-offer", "", "`kind` that they must be offered to, such as HTTPSource.sluice.dev")
	if err := s.parse(args, c.env); err != nil {
		return err
	}
	if *secrets == "" || *kind == "" {
		return usageError{fmt.Errorf("look for offers: want -secrets and -require-offer")}
	}
	entries, err := os.ReadDir(*secrets)
	if err != nil {
		return usageError{fmt.Errorf("look for offers: %w", err)}
	}
	for _, e := range entries {
		if err := offered(filepath.Join(*secrets, e.Name()), e.Name(), *kind, false); err != nil {
			return err
		}
	}
	j.done = &worker.Result{Message: fmt.Sprintf("%d Secrets are offered to %s", len(entries), *kind)}
	return nil
}

// offered judges one Secret. One that does not exist, or holds nothing, is an
// empty directory; optional says that it needs no offer.
func offered(directory, name, kind string, optional bool) (err error) {
	secret, err := credential.Open(directory)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	defer func() { err = errors.Join(err, secret.Close()) }()
	if optional {
		keys, err := secret.Keys("")
		if err != nil || len(keys) == 0 {
			return err //nolint:wrapcheck // it says what it is about
		}
	}
	// What a foreign worker talks to nobody can tell, so that an offer for some
	// hosts is none for it.
	err = secret.Offered(kind, "")
	if e, ok := errors.AsType[*mover.Error](err); ok {
		return mover.Permanent(e.Reason, fmt.Errorf("look into Secret %q: %w", name, e.Err))
	}
	return err //nolint:wrapcheck // it says what it is about
}

// offeredSource looks again whether its Secret is offered when its files have
// been listed: one that appears while the worker starts was not there to be
// looked into before.
type offeredSource struct {
	closingSource
	look func() error
}

// Resolve implements mover.Source.
func (s offeredSource) Resolve(ctx context.Context) (mover.Revision, error) {
	r, err := s.closingSource.Resolve(ctx)
	if err == nil {
		err = s.look()
	}
	return r, err //nolint:wrapcheck // it says what it is about
}
