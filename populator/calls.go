package populator

import (
	"context"
	"log/slog"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// calls is what every call of the contract goes through: it has a deadline, a
// panic fails it alone, its error gets a code, and it is logged.
type calls struct{ log *slog.Logger }

func (c calls) intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	if path.Dir(info.FullMethod) != "/"+populatorv1.Populator_ServiceDesc.ServiceName {
		return next(ctx, in)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultDeadline)
		defer cancel()
	}
	begin := time.Now()
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(ctx, "panic in a call", "method", path.Base(info.FullMethod), "panic", p, "stack", string(debug.Stack()))
			out, err = nil, callErrorf(codes.Internal, "the plugin panicked")
		}
		err = wireError(err)
		c.report(ctx, path.Base(info.FullMethod), in, time.Since(begin), err)
	}()
	return next(ctx, in)
}

// report logs a call without anything that a source says.
func (c calls) report(ctx context.Context, method string, in any, took time.Duration, err error) {
	attrs := []slog.Attr{slog.String("method", method), slog.Duration("took", took)}
	if r, ok := in.(interface{ GetId() string }); ok {
		attrs = append(attrs, slog.String("fill", r.GetId()))
	}
	if r, ok := in.(interface{ GetClaim() *populatorv1.Claim }); ok {
		attrs = append(attrs, slog.String("claim", r.GetClaim().GetNamespace()+"/"+r.GetClaim().GetName()))
	}
	if err == nil {
		c.log.LogAttrs(ctx, slog.LevelDebug, "call served", attrs...)
		return
	}
	attrs = append(attrs, slog.String("code", status.Code(err).String()), slog.String("error", status.Convert(err).Message()))
	level := slog.LevelWarn
	switch status.Code(err) {
	case codes.NotFound, codes.ResourceExhausted, codes.Canceled, codes.FailedPrecondition, codes.Unimplemented:
		// Such answers are part of the contract.
		level = slog.LevelDebug
	default:
	}
	c.log.LogAttrs(ctx, level, "call refused", attrs...)
}
