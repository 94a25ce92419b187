package http

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// Names of the algorithms.
const (
	sha256Name = "sha256"
	sha512Name = "sha512"
)

// digest is what a file must have; the zero value is anything.
type digest struct {
	name string
	sum  string // hex, lower case
	make func() hash.Hash
}

// parseDigest reads algorithm:hex.
func parseDigest(text string) (digest, error) {
	if text == "" {
		return digest{}, nil
	}
	name, sum, _ := strings.Cut(text, ":")
	d := digest{name: name, sum: strings.ToLower(sum)}
	switch name {
	case sha256Name:
		d.make = sha256.New
	case sha512Name:
		d.make = sha512.New
	default:
		return digest{}, errors.New("read digest: want sha256:… or sha512:…")
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != d.make().Size() {
		return digest{}, fmt.Errorf("read digest: %s takes %d hexadecimal digits", name, 2*d.make().Size())
	}
	return d, nil
}
