package block_test

import (
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
