package populator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/codes"

	"github.com/sluice-dev/sluice/api/worker"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// service serves the contract for a plugin.
type service[S any] struct {
	populatorv1.UnimplementedPopulatorServer

	plugin Plugin[S]
	fills  *fills[S]
}

func newService[S any](p Plugin[S], log *slog.Logger) (*service[S], error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	s := &service[S]{plugin: p}
	if p.Filler != nil {
		s.fills = newFills(p, log)
	}
	return s, nil
}

func (s *service[S]) stop(ctx context.Context) {
	if s.fills != nil {
		s.fills.stop(ctx)
	}
}

// GetInfo tells who the plugin is and what it can do.
func (s *service[S]) GetInfo(context.Context, *populatorv1.GetInfoRequest) (*populatorv1.GetInfoResponse, error) {
	return s.plugin.info(), nil
}

// ValidateSource asks the Validator.
func (s *service[S]) ValidateSource(ctx context.Context, in *populatorv1.ValidateSourceRequest) (*populatorv1.ValidateSourceResponse, error) {
	if s.plugin.Validator == nil {
		return nil, unimplemented("ValidateSource")
	}
	if in.GetSource() == nil {
		return nil, callErrorf(codes.InvalidArgument, "request has no source")
	}
	source, err := decodeSource[S](in.GetSource())
	if err == nil {
		err = s.plugin.Validator.Validate(ctx, source)
	}
	switch {
	case err == nil:
		return &populatorv1.ValidateSourceResponse{}, nil
	case isCall(err):
		return nil, err
	case err.Error() == "":
		return &populatorv1.ValidateSourceResponse{Invalid: "the plugin does not say what is wrong"}, nil
	}
	return &populatorv1.ValidateSourceResponse{Invalid: worker.Clean(err.Error())}, nil
}

// MutatePrime asks the Primer.
func (s *service[S]) MutatePrime(ctx context.Context, in *populatorv1.MutatePrimeRequest) (*populatorv1.MutatePrimeResponse, error) {
	if s.plugin.Primer == nil {
		return nil, unimplemented("MutatePrime")
	}
	source, err := decodeSource[S](in.GetSource())
	if err != nil {
		return nil, invalid(err)
	}
	claim, err := decodeClaim(in.GetClaim())
	if err != nil {
		return nil, invalid(err)
	}
	prime, err := s.plugin.Primer.Prime(ctx, source, claim)
	if isFailure(err) {
		return nil, &call{code: failureCode(err), err: err}
	}
	if err != nil {
		return nil, err
	}
	return &populatorv1.MutatePrimeResponse{Labels: prime.Labels, Annotations: prime.Annotations}, nil
}

// maxResponse is what an answer may take, less some room for what is around a
// worker.
const maxResponse = 1<<20 - 4<<10

// ComputeWorker asks the WorkerComputer.
func (s *service[S]) ComputeWorker(ctx context.Context, in *populatorv1.ComputeWorkerRequest) (*populatorv1.ComputeWorkerResponse, error) {
	if s.plugin.Worker == nil {
		return nil, unimplemented("ComputeWorker")
	}
	request, err := decodeRequest[S](in)
	if err != nil {
		return nil, invalid(err)
	}
	template, err := s.plugin.Worker.ComputeWorker(ctx, request)
	if isFailure(err) {
		return &populatorv1.ComputeWorkerResponse{Failure: wireFailure(err)}, nil
	}
	if err != nil {
		return nil, err
	}
	if template == nil {
		return nil, callErrorf(codes.Internal, "plugin computed no worker and gave no error")
	}
	data, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode worker: %w", err)
	}
	if len(data) > maxResponse {
		err := Permanent(InvalidSource.Errorf("the worker for it takes %d bytes, more than %d", len(data), maxResponse))
		return &populatorv1.ComputeWorkerResponse{Failure: wireFailure(err)}, nil
	}
	return &populatorv1.ComputeWorkerResponse{WorkerJson: data}, nil
}

// StartFill begins a fill, if it is not known.
func (s *service[S]) StartFill(ctx context.Context, in *populatorv1.StartFillRequest) (*populatorv1.StartFillResponse, error) {
	if s.fills == nil {
		return nil, unimplemented("StartFill")
	}
	if err := checkID(in.GetId()); err != nil {
		return nil, err
	}
	request, err := decodeRequest[S](in)
	if err != nil {
		return nil, invalid(err)
	}
	if in.GetVolume() == nil {
		return nil, callErrorf(codes.InvalidArgument, "request has no volume")
	}
	fill, err := s.fills.start(ctx, Fill[S]{Request: request, ID: in.GetId(), Attempt: int(in.GetAttempt())})
	if err != nil {
		return nil, err
	}
	return &populatorv1.StartFillResponse{Fill: fill}, nil
}

// GetFill tells how far a fill is.
func (s *service[S]) GetFill(ctx context.Context, in *populatorv1.GetFillRequest) (*populatorv1.GetFillResponse, error) {
	if s.fills == nil {
		return nil, unimplemented("GetFill")
	}
	if err := checkID(in.GetId()); err != nil {
		return nil, err
	}
	fill, err := s.fills.get(ctx, FillRef{ID: in.GetId(), Volume: decodeVolume(in.GetVolume())})
	if err != nil {
		return nil, err
	}
	return &populatorv1.GetFillResponse{Fill: fill}, nil
}

// CleanupFill ends a fill for good.
func (s *service[S]) CleanupFill(ctx context.Context, in *populatorv1.CleanupFillRequest) (*populatorv1.CleanupFillResponse, error) {
	if s.fills == nil {
		return nil, unimplemented("CleanupFill")
	}
	if err := checkID(in.GetId()); err != nil {
		return nil, err
	}
	ref := FillRef{ID: in.GetId(), Volume: decodeVolume(in.GetVolume())}
	return s.fills.cleanup(ctx, ref, in.GetHandedOver())
}

func unimplemented(method string) error {
	return callErrorf(codes.Unimplemented, "plugin does not serve %s", method)
}

// invalid is the error of a request that does not hold what it should. The
// manager's part of it is always well-formed, so it is the source's fault.
func invalid(err error) error { return &call{code: codes.InvalidArgument, err: err} }

// failureCode is the code for an outcome of a call that has no Failure in its
// answer.
func failureCode(err error) codes.Code {
	if ReasonOf(err) == InvalidSource || IsPermanent(err) {
		return codes.InvalidArgument
	}
	return codes.FailedPrecondition
}
