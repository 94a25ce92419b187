package populatortest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/populator"
)

// Serve serves a plugin of package populator, on a unix socket, until the test
// ends, and returns it as a target that can be restarted. build makes the plugin,
// once for each start: what is to outlive a restart, such as the directory of a
// journal, is made before. A process cannot be killed in itself, so a restart is
// one by a signal; see [Start] for the other kind.
func Serve[S any](t *testing.T, build func() (populator.Plugin[S], error), opts ...populator.Option) Target {
	t.Helper()
	p := &server{socket: socket(t), failed: t.Errorf}
	p.serve = func(ctx context.Context) error {
		plugin, err := build()
		if err != nil {
			return fmt.Errorf("build plugin: %w", err)
		}
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		all := append([]populator.Option{populator.WithLogger(log), populator.WithGracePeriod(grace)}, opts...)
		return populator.Serve(ctx, plugin, populator.Unix(p.socket), all...)
	}
	p.start(context.WithoutCancel(t.Context()))
	t.Cleanup(p.stop)
	return Target{Address: "unix:" + p.socket, Restart: p.restart}
}

// server is a plugin that is served in this process.
type server struct {
	socket string
	serve  func(ctx context.Context) error
	failed func(format string, args ...any)

	cancel context.CancelFunc
	done   chan struct{}
}

func (p *server) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	done := make(chan struct{})
	p.done = done
	go func() {
		defer close(done)
		if err := p.serve(ctx); err != nil {
			p.failed("serve plugin: %v", err)
		}
	}()
}

func (p *server) stop() {
	p.cancel()
	<-p.done
}

func (p *server) restart(ctx context.Context) error {
	p.stop()
	p.start(context.WithoutCancel(ctx))
	return nil
}

// socket returns a path for a socket. Paths of sockets are short, shorter than
// many a t.TempDir.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatalf("make directory of socket: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove directory of socket: %v", err)
		}
	})
	return filepath.Join(dir, "plugin.sock")
}

// grace is how long fills that are cancelled may take to end.
const grace = 5 * time.Second

// startTimeout is how long a plugin may take until it listens.
const startTimeout = 30 * time.Second
