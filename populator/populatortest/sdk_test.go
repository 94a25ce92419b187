package populatortest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
	"github.com/sluice-dev/sluice/populator/populatortest"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// note is the source of the plugins in these tests.
type note struct {
	Spec struct {
		Text string `json:"text"`
		// Chunks makes a fill slow.
		Chunks int `json:"chunks"`
		// Fail makes a fill fail.
		Fail bool `json:"fail"`
	} `json:"spec"`
}

func noteSource(spec string) []byte {
	return []byte(`{"apiVersion":"notes.example.com/v1","kind":"Note","metadata":{"namespace":"team","name":"note",` +
		`"uid":"5f6e0d8e-9a2b-4c57-8f0e-1d2c3b4a5968","generation":2},"spec":` + spec + `}`)
}

var noteKinds = []populator.Kind{{Group: "notes.example.com", Kind: "Note"}}

func validNote(_ context.Context, s populator.Source[note]) error {
	if s.Object.Spec.Text == "" {
		return errors.New("spec.text is empty: write what the volume is to hold")
	}
	return nil
}

func target(t populatortest.Target) populatortest.Target {
	t.Source = noteSource(`{"text":"hello"}`)
	t.Invalid = noteSource(`{"text":""}`)
	t.Slow = noteSource(`{"text":"hello","chunks":6000}`)
	t.Failing = noteSource(`{"text":"hello","fail":true}`)
	return t
}

// shelf is a storage: a directory for each volume.
type shelf struct {
	dir string

	mu    sync.Mutex
	begun map[string]int
}

func newShelf(t *testing.T) *shelf { return &shelf{dir: t.TempDir(), begun: map[string]int{}} }

func (s *shelf) count(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[id]++
}

func (s *shelf) target(t populatortest.Target) populatortest.Target {
	t = target(t)
	t.Filled = func(v *populatorv1.Volume) error {
		got, err := os.ReadFile(filepath.Join(s.dir, v.GetCsiHandle()))
		if err == nil && string(got) != "hello" {
			err = fmt.Errorf("it holds %q", got)
		}
		return err
	}
	t.Fingerprint = func(v *populatorv1.Volume) (string, error) {
		got, err := os.ReadFile(filepath.Join(s.dir, v.GetCsiHandle()))
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		return string(got), err
	}
	t.Begun = func(id string) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.begun[id], nil
	}
	return t
}

// fill writes a note, slowly if it has chunks.
func (s *shelf) fill(ctx context.Context, f populator.Fill[note], report func(populator.Progress)) (string, error) {
	s.count(f.ID)
	spec := f.Source.Object.Spec
	if spec.Fail {
		return "", populator.Permanent(populator.SourceMissing.Errorf("note %q has no text on the server", f.Source.Name))
	}
	name := filepath.Join(s.dir, f.Volume.Handle)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range spec.Chunks {
		report(populator.Progress{BytesDone: int64(i), BytesTotal: int64(spec.Chunks)})
		if err := os.WriteFile(name, []byte(strings.Repeat("x", i+1)), 0o600); err != nil {
			return "", fmt.Errorf("write note: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if err := os.WriteFile(name, []byte(spec.Text), 0o600); err != nil {
		return "", fmt.Errorf("write note: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(spec.Text))), nil
}

func TestWorkerPlugin(t *testing.T) {
	populatortest.Run(t, target(populatortest.Serve(t, func() (populator.Plugin[note], error) {
		return populator.Plugin[note]{
			Name: "notes.example.com", Kinds: noteKinds,
			Validator: populator.ValidatorFunc[note](validNote),
			Primer: populator.PrimerFunc[note](func(_ context.Context, s populator.Source[note], _ populator.Claim) (populator.Prime, error) {
				return populator.Prime{Labels: map[string]string{"notes.example.com/name": s.Name}}, nil
			}),
			Worker: populator.WorkerFunc[note](func(_ context.Context, r populator.Request[note]) (*v1alpha1.WorkerTemplate, error) {
				if err := validNote(t.Context(), r.Source); err != nil {
					return nil, populator.Permanent(populator.InvalidSource.Errorf("%w", err))
				}
				return &v1alpha1.WorkerTemplate{
					Image: "busybox", Command: []string{"cp", "-r", "/files/.", "/target"},
					Files: []v1alpha1.File{{Name: "note", Content: r.Source.Object.Spec.Text}},
				}, nil
			}),
		}, nil
	})))
}

func TestBackgroundPlugin(t *testing.T) {
	s, dir := newShelf(t), t.TempDir()
	populatortest.Run(t, s.target(populatortest.Serve(t, func() (populator.Plugin[note], error) {
		journal, err := populator.FileJournal(dir)
		return populator.Plugin[note]{
			Name: "notes.example.com", Version: "v1.2.3", Kinds: noteKinds,
			Validator: populator.ValidatorFunc[note](validNote),
			Filler:    populator.Background(8, s.refuseInvalid(s.fill)),
			Journal:   journal,
		}, err
	})))
}

func (s *shelf) refuseInvalid(next populator.FillFunc[note]) populator.FillFunc[note] {
	return func(ctx context.Context, f populator.Fill[note], report func(populator.Progress)) (string, error) {
		if err := validNote(ctx, f.Source); err != nil {
			return "", populator.Permanent(populator.InvalidSource.Errorf("%w", err))
		}
		return next(ctx, f, report)
	}
}
