package populator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// An Option changes how a plugin is served.
type Option func(*options)

type options struct {
	log    *slog.Logger
	grace  time.Duration
	server []grpc.ServerOption
}

// WithLogger has the server log there instead of to slog's default logger. Calls
// that go well are logged at level debug.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithGracePeriod is how long the server waits for calls and fills to end when it
// is told to stop. The default of 25 s fits Kubernetes' own of 30 s.
func WithGracePeriod(d time.Duration) Option { return func(o *options) { o.grace = d } }

// WithServerOptions adds options of the gRPC server, such as interceptors for
// metrics or traces. They see a call before what this package does about it.
func WithServerOptions(s ...grpc.ServerOption) Option {
	return func(o *options) { o.server = append(o.server, s...) }
}

// Limits of the contract.
const (
	maxRequest = 4 << 20
	// defaultDeadline is that of a call that comes without one.
	defaultDeadline = 30 * time.Second
	// maxStreams bounds the calls of one connection that are served at a time.
	maxStreams = 256
)

// Serve serves a plugin until the context ends, and then ends it in good order:
// no new calls, those that are being served are finished, and functions of
// [Background] are cancelled and waited for. It returns nil then, and an error if
// the plugin is not complete or cannot listen.
//
// With the plugin the server offers gRPC's health service, for the probes of its
// Pod: grpc_health_v1 with the service name "" or "sluice.populator.v1.Populator".
func Serve[S any](ctx context.Context, p Plugin[S], at Endpoint, opts ...Option) error {
	o := options{log: slog.Default(), grace: 25 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	s, err := newService(p, o.log)
	if err != nil {
		return fmt.Errorf("serve plugin %q: %w", p.Name, err)
	}
	listener, creds, err := at.listen(ctx)
	if err != nil {
		return fmt.Errorf("serve plugin %q: %w", p.Name, err)
	}
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	server := grpc.NewServer(append(o.server,
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ChainUnaryInterceptor(calls{log: o.log}.intercept),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)...)
	populatorv1.RegisterPopulatorServer(server, s)
	healthy := health.NewServer()
	healthy.SetServingStatus(populatorv1.Populator_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthy)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	o.log.InfoContext(ctx, "plugin is served", "plugin", p.Name, "version", p.Version, "endpoint", at.String())
	select {
	case err := <-served:
		s.stop(stopped())
		return fmt.Errorf("serve plugin %q: %w", p.Name, err)
	case <-ctx.Done():
	}
	o.log.Info("plugin is stopping", "plugin", p.Name)
	healthy.Shutdown()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.grace)
	defer cancel()
	calm := make(chan struct{})
	go func() { defer close(calm); server.GracefulStop() }()
	select {
	case <-calm:
	case <-grace.Done():
		server.Stop()
	}
	s.stop(grace)
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve plugin %q: %w", p.Name, err)
	}
	return nil
}

// stopped is a context in which nothing is waited for.
func stopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
