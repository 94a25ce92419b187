package population

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	sdk "github.com/sluice-dev/sluice/populator"
)

// greeting is a source of a scene, as plugins get it.
type greeting struct {
	Spec struct {
		FileName     string `json:"fileName"`
		FileContents string `json:"fileContents"`
	} `json:"spec"`
}

// vendorStorage fills volumes by itself: the storage behind a plugin. Its jobs
// outlive the plugin.
type vendorStorage struct {
	mu   sync.Mutex
	jobs map[string]*job // by the id of the fill
	// held keeps jobs from ending, failure is how those that are started end, and
	// stuck keeps cleaning up from being done.
	held    bool
	failure error
	stuck   bool
}

// job is what the storage knows of one fill.
type job struct {
	claim, handle       string
	attempt             int
	starts, cleanups    int
	cleaned, handedOver bool
	failure             error
}

func newStorage() *vendorStorage { return &vendorStorage{jobs: map[string]*job{}} }

// change changes what the storage does from now on.
func (v *vendorStorage) change(f func(*vendorStorage)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v)
}

// of are the jobs for a claim, the oldest attempt's first.
func (v *vendorStorage) of(namespace, claim string) []job {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []job
	for _, j := range v.jobs {
		if j.claim == namespace+"/"+claim {
			out = append(out, *j)
		}
	}
	slices.SortFunc(out, func(a, b job) int { return a.attempt - b.attempt })
	return out
}

// runs says what is missing until a job for a claim runs.
func (v *vendorStorage) runs(namespace, claim string) func(context.Context) error {
	return func(context.Context) error {
		if jobs := v.of(namespace, claim); len(jobs) != 1 || jobs[0].cleanups > 0 {
			return fmt.Errorf("jobs are %+v", jobs)
		}
		return nil
	}
}

// Start implements the Filler of the SDK.
func (v *vendorStorage) Start(_ context.Context, f sdk.Fill[greeting]) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	j := v.jobs[f.ID]
	if j == nil {
		j = &job{claim: f.Claim.Namespace + "/" + f.Claim.Name, handle: f.Volume.Handle, attempt: f.Attempt, failure: v.failure}
		v.jobs[f.ID] = j
	}
	j.starts++
	return nil
}

// Status implements the Filler of the SDK.
func (v *vendorStorage) Status(_ context.Context, f sdk.FillRef) (sdk.Status, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	j := v.jobs[f.ID]
	switch {
	case j == nil:
		return sdk.Status{}, sdk.ErrUnknownFill
	case v.held:
		return sdk.Status{
			RetryAfter: time.Second, Message: "copying", Progress: sdk.Progress{BytesDone: 1 << 20, BytesTotal: 4 << 20},
		}, nil
	case j.failure != nil:
		return sdk.Status{State: sdk.Failed, Err: j.failure}, nil
	}
	return sdk.Status{State: sdk.Succeeded, Digest: digest, Progress: sdk.Progress{BytesDone: 4 << 20, BytesTotal: 4 << 20}}, nil
}

// digest is that of everything in the storage.
const digest = "sha256:d9014c4624844aa5bac314773d6b689ad467fa4e1d1a50a1b8a99d5a95f72ff5"

// Cleanup implements the Cleaner of the SDK.
func (v *vendorStorage) Cleanup(_ context.Context, f sdk.FillRef, handedOver bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	j := v.jobs[f.ID]
	if j == nil {
		return nil
	}
	j.cleanups++
	if v.stuck {
		return sdk.NotYet(time.Second, "the copy is being cancelled")
	}
	j.cleaned, j.handedOver = true, handedOver
	return nil
}

// plugin is the plugin of the storage for the sources of a scene.
func (v *vendorStorage) plugin(s *scene) sdk.Plugin[greeting] {
	return sdk.Plugin[greeting]{
		Name: "storage.vendor.example", Version: "1.0", Kinds: []sdk.Kind{s.kind.GroupKind()},
		Filler: v, Cleaner: v, Journal: sdk.MemoryJournal(),
	}
}

// A pluginProgram is a plugin that can be started and stopped.
type pluginProgram[S any] struct {
	plugin   sdk.Plugin[S]
	endpoint sdk.Endpoint
	stopping func()
}

// start serves the plugin until it is stopped or the test ends.
func (p *pluginProgram[S]) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- sdk.Serve(ctx, p.plugin, p.endpoint, sdk.WithLogger(slog.New(slog.DiscardHandler)), sdk.WithGracePeriod(time.Second))
	}()
	p.stopping = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve the plugin: %v", err)
		}
	})
	t.Cleanup(p.stopping)
}

// stop ends the plugin, and what runs in the storage goes on.
func (p *pluginProgram[S]) stop() { p.stopping() }

// socketOf is where a side-car of the manager would listen for a scene.
func socketOf(t *testing.T, s *scene) string {
	t.Helper()
	path := filepath.Join("/run/sluice", s.namespace+".sock")
	t.Cleanup(func() {
		_ = os.Remove(path)               // the plugin did so if it could
		_ = os.Remove(filepath.Dir(path)) // while others use it, it stays
	})
	return path
}

// beside makes a plugin beside the manager, on a socket of its own.
func beside[S any](t *testing.T, s *scene, plugin sdk.Plugin[S]) (*pluginProgram[S], *v1alpha1.Plugin) {
	t.Helper()
	socket := socketOf(t, s)
	return &pluginProgram[S]{plugin: plugin, endpoint: sdk.Unix(socket)}, &v1alpha1.Plugin{Socket: socket}
}

// filledBy has a Populator be one of a plugin.
func filledBy(where *v1alpha1.Plugin) func(*v1alpha1.Populator) {
	return func(p *v1alpha1.Populator) {
		p.Spec.Worker, p.Spec.Validations, p.Spec.Plugin = nil, nil, where
	}
}
