package populatortest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/populator"
	"github.com/sluice-dev/sluice/populator/populatortest"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// The test binary is a plugin, too, so that there is one to kill.
const (
	envPlugin = "POPULATORTEST_PLUGIN"
	envSocket = "POPULATORTEST_SOCKET"
	envState  = "POPULATORTEST_STATE"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := servePlugin(ctx, os.Getenv(envSocket), os.Getenv(envState))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func servePlugin(ctx context.Context, socket, state string) error {
	journal, err := populator.FileJournal(filepath.Join(state, "journal"))
	if err != nil {
		return err
	}
	s := &shelf{dir: filepath.Join(state, "volumes"), begun: map[string]int{}}
	begun := func(ctx context.Context, f populator.Fill[note], report func(populator.Progress)) (string, error) {
		name := filepath.Join(state, "begun", f.ID)
		old, _ := os.ReadFile(name)
		if err := os.WriteFile(name, append(old, '+'), 0o600); err != nil {
			return "", err
		}
		return s.refuseInvalid(s.fill)(ctx, f, report)
	}
	return populator.Serve(ctx, populator.Plugin[note]{
		Name: "notes.example.com", Kinds: noteKinds,
		Validator: populator.ValidatorFunc[note](validNote),
		Filler:    populator.Background(32, begun),
		Journal:   journal,
	}, populator.Unix(socket), populator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
}

func TestProgram(t *testing.T) {
	state := t.TempDir()
	for _, dir := range []string{"volumes", "begun"} {
		if err := os.Mkdir(filepath.Join(state, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := &shelf{dir: filepath.Join(state, "volumes")}
	target := s.target(populatortest.Start(t, populatortest.Program{
		Command: []string{os.Args[0]},
		Env:     []string{envPlugin + "=1", envSocket + "={socket}", envState + "=" + state},
	}))
	target.Begun = func(id string) (int, error) {
		got, err := os.ReadFile(filepath.Join(state, "begun", id))
		if os.IsNotExist(err) {
			return 0, nil
		}
		return len(got), err
	}
	populatortest.Run(t, target)
}

// copier is a storage that copies by itself, whoever crashes, and knows its jobs.
type copier struct {
	*shelf

	mu   sync.Mutex
	jobs map[string]*copyJob
}

type copyJob struct {
	source note
	volume string
	begun  time.Time
	ended  bool
}

// Start makes a job of the fill's name; a storage refuses a second one of a name.
func (c *copier) Start(_ context.Context, f populator.Fill[note]) error {
	if err := validNote(context.Background(), f.Source); err != nil {
		return populator.Permanent(populator.InvalidSource.Errorf("%w", err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[f.ID] == nil {
		c.count(f.ID)
		c.jobs[f.ID] = &copyJob{source: f.Source.Object, volume: f.Volume.Handle, begun: time.Now()}
	}
	return nil
}

// Status looks at the job, and lets it do what the time since its begin allows.
func (c *copier) Status(_ context.Context, ref populator.FillRef) (populator.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	job := c.jobs[ref.ID]
	if job == nil {
		return populator.Status{}, populator.ErrUnknownFill
	}
	if job.source.Spec.Fail {
		return populator.Status{State: populator.Failed, Err: populator.SourceForbidden.Errorf("the storage refuses the note")}, nil
	}
	ticks := int(time.Since(job.begun) / (10 * time.Millisecond))
	if ticks < job.source.Spec.Chunks && !job.ended {
		err := os.WriteFile(filepath.Join(c.dir, job.volume), []byte(strings.Repeat("x", ticks)), 0o600)
		return populator.Status{Progress: populator.Progress{BytesDone: int64(ticks), BytesTotal: int64(job.source.Spec.Chunks)}}, err
	}
	job.ended = true
	err := os.WriteFile(filepath.Join(c.dir, job.volume), []byte(job.source.Spec.Text), 0o600)
	return populator.Status{State: populator.Succeeded}, err
}

// Cleanup removes the job, the second time it is asked.
func (c *copier) Cleanup(_ context.Context, ref populator.FillRef, _ bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	job := c.jobs[ref.ID]
	if job == nil {
		return populator.ErrUnknownFill
	}
	if !job.ended {
		job.ended = true
		return populator.NotYet(time.Second, "the copy job is being cancelled")
	}
	delete(c.jobs, ref.ID)
	return nil
}

func TestStoragePlugin(t *testing.T) {
	c, dir := &copier{shelf: newShelf(t), jobs: map[string]*copyJob{}}, t.TempDir()
	target := c.target(populatortest.Serve(t, func() (populator.Plugin[note], error) {
		journal, err := populator.FileJournal(dir)
		return populator.Plugin[note]{
			Name: "notes.example.com", Kinds: noteKinds, Filler: c, Cleaner: c, Journal: journal,
		}, err
	}))
	target.Fingerprint = func(v *populatorv1.Volume) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, job := range c.jobs {
			if job.volume == v.GetCsiHandle() {
				return time.Since(job.begun).String(), nil
			}
		}
		return "", nil
	}
	populatortest.Run(t, target)
}
