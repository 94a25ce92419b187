package populator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

type compute = func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error)

func computing(f compute) populator.Plugin[Greeting] {
	return populator.Plugin[Greeting]{
		Name: "greeting.example.com", Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}},
		Worker: populator.WorkerFunc[Greeting](f),
	}
}

func filling(t *testing.T, limit int, f populator.FillFunc[Greeting]) populator.Plugin[Greeting] {
	t.Helper()
	return populator.Plugin[Greeting]{
		Name: "greeting.example.com", Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}},
		Filler: populator.Background(limit, f), Journal: journal(t, t.TempDir()),
	}
}

func journal(t *testing.T, dir string) populator.Journal {
	t.Helper()
	j, err := populator.FileJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// served is a plugin that is served, and a connection to it.
type served struct {
	conn   *grpc.ClientConn
	client populatorv1.PopulatorClient
	// stop tells the plugin to end and returns what Serve returned.
	stop func() error
}

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "plugin.sock")
}

func serve(t *testing.T, p populator.Plugin[Greeting]) served {
	t.Helper()
	socket := socketPath(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	quiet := populator.WithLogger(slog.New(slog.DiscardHandler))
	go func() { done <- populator.Serve(ctx, p, populator.Unix(socket), quiet) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	var result error
	ended := false
	s := served{conn: conn, client: populatorv1.NewPopulatorClient(conn), stop: func() error {
		if !ended {
			cancel()
			result, ended = <-done, true
		}
		return result
	}}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), s.stop()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func computeRequest() *populatorv1.ComputeWorkerRequest {
	return &populatorv1.ComputeWorkerRequest{
		Source: &populatorv1.Source{Json: []byte(`{"spec":{"name":"world"}}`), Namespace: "team", Name: "a"},
		Volume: &populatorv1.Volume{Name: "pvc-1"},
	}
}

func startRequest(id string) *populatorv1.StartFillRequest {
	return &populatorv1.StartFillRequest{Id: id, Source: computeRequest().GetSource(), Volume: &populatorv1.Volume{Name: "pvc-1", CsiHandle: "vol-1"}, Attempt: 2}
}

func TestErrorsOfAWorker(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   *populatorv1.Failure
		code   codes.Code
	}{
		"Reason":      {"a reason is an answer", populator.SourceForbidden.Errorf("no"), &populatorv1.Failure{Reason: "SourceForbidden", Message: "no"}, codes.OK},
		"Permanent":   {"so is a mark", populator.Permanent(errors.New("no")), &populatorv1.Failure{Message: "no", Permanent: true}, codes.OK},
		"Both":        {"a mark keeps the reason", populator.Permanent(populator.SourceEmpty.Errorf("no")), &populatorv1.Failure{Reason: "SourceEmpty", Message: "no", Permanent: true}, codes.OK},
		"Wrapped":     {"also further down", fmt.Errorf("ask: %w", populator.SourceEmpty.Errorf("no")), &populatorv1.Failure{Reason: "SourceEmpty", Message: "ask: no"}, codes.OK},
		"Lines":       {"a message is one clean line", populator.SourceEmpty.Errorf("no\n\x1b[31mway"), &populatorv1.Failure{Reason: "SourceEmpty", Message: "no [31mway"}, codes.OK},
		"Plain":       {"any other error says nothing about the source", errors.New("database is down"), nil, codes.Unavailable},
		"Unavailable": {"nor does this", populator.Unavailable(errors.New("no")), nil, codes.Unavailable},
		"Busy":        {"a busy plugin lets wait", populator.Busy(errors.New("no")), nil, codes.ResourceExhausted},
		"Deadline":    {"a call that took too long", context.DeadlineExceeded, nil, codes.DeadlineExceeded},
		"Foreign":     {"another service's code would end the attempt", status.Error(codes.NotFound, "no row"), nil, codes.Unavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t, computing(func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) {
				return nil, c.err
			}))
			answer, err := s.client.ComputeWorker(t.Context(), computeRequest())
			if status.Code(err) != c.code {
				t.Fatalf("%s: got %v, want code %s", c.reason, err, c.code)
			}
			got := answer.GetFailure()
			if got.GetReason() != c.want.GetReason() || got.GetMessage() != c.want.GetMessage() || got.GetPermanent() != c.want.GetPermanent() {
				t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
			}
		})
	}
}

func TestAPanicFailsOneCall(t *testing.T) {
	s := serve(t, computing(func(_ context.Context, r populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) {
		if r.Source.Name == "bad" {
			panic("nil map")
		}
		return &v1alpha1.WorkerTemplate{Image: "busybox"}, nil
	}))
	bad := computeRequest()
	bad.Source.Name = "bad"
	if _, err := s.client.ComputeWorker(t.Context(), bad); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "nil map") {
		t.Errorf("got %v, want INTERNAL without what only the author may know", err)
	}
	if _, err := s.client.ComputeWorker(t.Context(), computeRequest()); err != nil {
		t.Errorf("the call after a panic: %v", err)
	}
}

func TestACallHasADeadline(t *testing.T) {
	has := false
	s := serve(t, computing(func(ctx context.Context, _ populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) {
		_, has = ctx.Deadline()
		return &v1alpha1.WorkerTemplate{Image: "busybox"}, nil
	}))
	if _, err := s.client.ComputeWorker(context.WithoutCancel(t.Context()), computeRequest()); err != nil || !has {
		t.Errorf("a call without a deadline: got %v, deadline %v; want one", err, has)
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, computing(nil))
	for _, name := range []string{"", "sluice.populator.v1.Populator"} {
		answer, err := healthv1.NewHealthClient(s.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: got %v, %v", name, answer, err)
		}
	}
}

func TestAPluginThatIsNotComplete(t *testing.T) {
	whole := computing(func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) { return nil, nil })
	for name, spoil := range map[string]func(*populator.Plugin[Greeting]){
		"no name":        func(p *populator.Plugin[Greeting]) { p.Name = "" },
		"no kind":        func(p *populator.Plugin[Greeting]) { p.Kinds = nil },
		"half a kind":    func(p *populator.Plugin[Greeting]) { p.Kinds[0].Group = "" },
		"no way to fill": func(p *populator.Plugin[Greeting]) { p.Worker = nil },
		"two ways": func(p *populator.Plugin[Greeting]) {
			p.Filler, p.Journal = populator.FillerFuncs[Greeting]{}, populator.MemoryJournal()
		},
		"no journal": func(p *populator.Plugin[Greeting]) {
			p.Worker, p.Filler = nil, populator.FillerFuncs[Greeting]{}
		},
		"a cleaner of nothing": func(p *populator.Plugin[Greeting]) { p.Cleaner = populator.CleanerFunc(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := whole
			p.Kinds = append([]populator.Kind(nil), whole.Kinds...)
			spoil(&p)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := populator.Serve(ctx, p, populator.Unix(socketPath(t))); err == nil || ctx.Err() != nil {
				t.Errorf("got %v, want the plugin refused at once", err)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	whole := computing(func(context.Context, populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) { return nil, nil })
	t.Run("InUse", func(t *testing.T) {
		path := socketPath(t)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := populator.Serve(t.Context(), whole, populator.Unix(path)); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("got %v, want the socket in use", err)
		}
	})
	t.Run("AFile", func(t *testing.T) {
		path := socketPath(t)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := populator.Serve(t.Context(), whole, populator.Unix(path)); err == nil {
			t.Error("got nothing, want an error")
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
			t.Errorf("the file is gone: %q, %v", got, err)
		}
	})
	t.Run("LeftByACrash", func(t *testing.T) {
		path := socketPath(t)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- populator.Serve(ctx, whole, populator.Unix(path), populator.WithLogger(slog.New(slog.DiscardHandler)))
		}()
		conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := populatorv1.NewPopulatorClient(conn).GetInfo(t.Context(), &populatorv1.GetInfoRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("socket has mode %v (%v), want one for its group and nobody else", info.Mode(), err)
		}
		cancel()
		if err := errors.Join(conn.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
}
