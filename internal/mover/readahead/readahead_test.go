package readahead_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/sluice-dev/sluice/internal/mover/readahead"
)

func TestSameBytes(t *testing.T) {
	data := make([]byte, 5<<20+17)
	rnd := rand.NewChaCha8([32]byte{1})
	if _, err := rnd.Read(data); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]func(io.Reader) io.Reader{
		"Whole": func(r io.Reader) io.Reader { return r },
		"Half":  iotest.HalfReader,
		"EOF":   iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			r := readahead.New(in(bytes.NewReader(data)))
			defer r.Close()
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v; want the %d bytes that went in", len(got), err, len(data))
			}
			if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("Read after the end = %d, %v, want EOF again", n, err)
			}
		})
	}
}

func TestError(t *testing.T) {
	broken := errors.New("broken")
	r := readahead.New(io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(broken)))
	defer r.Close()
	got, err := io.ReadAll(r)
	if string(got) != "abc" || !errors.Is(err, broken) {
		t.Errorf("ReadAll = %q, %v, want what came before the error and the error", got, err)
	}
}

func TestCloseEndsEarly(t *testing.T) {
	endless := &zeros{}
	r := readahead.New(endless)
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// The goroutine has ended: this is no race.
	endless.closed = true
	if err := r.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
}

type zeros struct{ closed bool }

func (z *zeros) Read(p []byte) (int, error) {
	if z.closed {
		return 0, errors.New("read after close")
	}
	clear(p)
	return len(p), nil
}
