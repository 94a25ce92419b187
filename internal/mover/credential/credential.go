// Package credential reads the credentials of a source out of a mounted
// Secret. Their values are held in memory and never printed: no error of this
// package contains any.
package credential

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// maxSize bounds one value, which is far beyond what a Secret may hold.
const maxSize = 1 << 20

// OfferKey is the key by which the owner of a Secret says who may use it: one
// line for each kind of source, as Kind.group, followed by the hosts it may be
// sent to, or none for any.
const OfferKey = "sluice.dev.offer"

// Secret is a directory in which a Secret is mounted: one file for each key.
type Secret struct{ root *os.Root }

// Open opens the directory.
func Open(directory string) (*Secret, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("open credentials: %w", err)
	}
	return &Secret{root: root}, nil
}

// Close releases the directory.
func (s *Secret) Close() error {
	if err := s.root.Close(); err != nil {
		return fmt.Errorf("close credentials: %w", err)
	}
	return nil
}

// Get returns the value of a key, without a line end at its end, which editors
// and echo leave there. It reports false when there is no such key.
func (s *Secret) Get(key string) (_ []byte, ok bool, err error) {
	f, err := s.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("open credential %q: %w", key, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	value, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, false, fmt.Errorf("read credential %q: %w", key, err)
	}
	if len(value) > maxSize {
		return nil, false, fmt.Errorf("read credential %q: it is larger than %d bytes", key, maxSize)
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	return bytes.TrimSuffix(value, []byte("\r")), true, nil
}

// Keys returns the keys that begin with prefix, in order.
func (s *Secret) Keys(prefix string) ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	var out []string
	for _, e := range entries {
		// Names that begin with two dots are how the kubelet swaps contents.
		if name := e.Name(); strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "..") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Offered returns an error with reason SecretNotOffered unless the Secret's
// owner has offered it to sources of this kind, for this host.
func (s *Secret) Offered(kind, host string) error {
	text, ok, err := s.Get(OfferKey)
	if err != nil {
		return err
	}
	if !ok {
		return notOffered(fmt.Errorf("the Secret has no key %q, by which its owner would offer it to %s", OfferKey, kind))
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != kind {
			continue
		}
		if len(words) == 1 || slices.ContainsFunc(words[1:], func(w string) bool { return strings.EqualFold(w, host) }) {
			return nil
		}
	}
	return notOffered(fmt.Errorf("the key %q of the Secret does not offer it to %s for host %q", OfferKey, kind, host))
}

func notOffered(err error) error { return mover.Permanent(worker.ReasonSecretNotOffered, err) }
