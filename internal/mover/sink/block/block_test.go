package block_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
	"github.com/sluice-dev/sluice/internal/mover/sink/block"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]block.Options{"Plain": {}, "ReadBack": {ReadBack: true}} {
		t.Run(name, func(t *testing.T) {
			movertest.DeviceSink(t, func(t *testing.T, target string) mover.Sink {
				t.Helper()
				s, err := block.Open(target, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			})
		})
	}
}

func TestOpenMissing(t *testing.T) {
	target := filepath.Join(t.TempDir(), "none")
	if _, err := block.Open(target, block.Options{}); err == nil {
		t.Error("Open of a device that does not exist = nil, want an error")
	}
}

// TestZeros puts zeros over what is on the device.
func TestZeros(t *testing.T) {
	target := filepath.Join(t.TempDir(), "device")
	const size = 4 << 20
	if err := os.WriteFile(target, bytes.Repeat([]byte("old"), size/3+1)[:size], 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := block.Open(target, block.Options{ReadBack: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 3<<20+7)
	data[0], data[len(data)-1] = 'a', 'z'
	if err := s.Put(t.Context(), mover.Entry{Path: "f", Size: int64(len(data))}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:len(data)], data) || !bytes.Contains(got[len(data):], []byte("oldold")) {
		t.Error("the device holds something else than was put, or lost what was not to be touched")
	}
}
