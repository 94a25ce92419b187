package plugin

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// A trace is what was seen of one call on the wire.
type trace struct {
	// sent says that the request was handed to the connection, and ended that the
	// plugin's own status came back.
	sent, ended atomic.Bool
}

type traceKey struct{}

// traced returns a context whose call leaves a trace.
func traced(ctx context.Context) (context.Context, *trace) {
	t := &trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// doubtful says that the plugin may have done what it was asked although the call
// ended with an error: the request went out, and what came back is not a word of
// the plugin's that it did nothing.
func (t *trace) doubtful(err error) bool {
	if err == nil || !t.sent.Load() {
		return false
	}
	if !t.ended.Load() {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		return false
	default:
		return true
	}
}

// witness is a stats.Handler that fills traces.
type witness struct{}

var _ stats.Handler = witness{}

// TagRPC implements stats.Handler.
func (witness) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (witness) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(traceKey{}).(*trace)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.OutPayload:
		t.sent.Store(true)
	case *stats.InTrailer:
		t.ended.Store(true)
	}
}

// TagConn implements stats.Handler.
func (witness) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (witness) HandleConn(context.Context, stats.ConnStats) {}
