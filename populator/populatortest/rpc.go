package populatortest

import (
	"context"
	"errors"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// rpc is a method of the contract.
type rpc struct {
	name string
	// needs is the capability that the method belongs to; 0 for every plugin.
	needs populatorv1.Capability
	// request makes a good request about a source, with an id and a volume of its
	// own.
	request func(t T, s *session, source []byte) proto.Message
	answer  func() proto.Message
}

var rpcs = []rpc{
	{
		name:    "GetInfo",
		request: func(T, *session, []byte) proto.Message { return &populatorv1.GetInfoRequest{} },
		answer:  func() proto.Message { return &populatorv1.GetInfoResponse{} },
	},
	{
		name: "ValidateSource", needs: populatorv1.Capability_CAPABILITY_VALIDATE_SOURCE,
		request: func(t T, _ *session, o []byte) proto.Message {
			return &populatorv1.ValidateSourceRequest{Source: source(t, o)}
		},
		answer: func() proto.Message { return &populatorv1.ValidateSourceResponse{} },
	},
	{
		name: "MutatePrime", needs: populatorv1.Capability_CAPABILITY_MUTATE_PRIME,
		request: func(t T, _ *session, o []byte) proto.Message {
			return &populatorv1.MutatePrimeRequest{Source: source(t, o), Claim: claim()}
		},
		answer: func() proto.Message { return &populatorv1.MutatePrimeResponse{} },
	},
	{
		name: "ComputeWorker", needs: populatorv1.Capability_CAPABILITY_COMPUTE_WORKER,
		request: func(t T, s *session, o []byte) proto.Message {
			return &populatorv1.ComputeWorkerRequest{Source: source(t, o), Claim: claim(), Volume: s.volume(t)}
		},
		answer: func() proto.Message { return &populatorv1.ComputeWorkerResponse{} },
	},
	{
		name: "StartFill", needs: populatorv1.Capability_CAPABILITY_FILL,
		request: func(t T, s *session, o []byte) proto.Message { return startRequest(source(t, o), newID(), s.volume(t)) },
		answer:  func() proto.Message { return &populatorv1.StartFillResponse{} },
	},
	{
		name: "GetFill", needs: populatorv1.Capability_CAPABILITY_FILL,
		request: func(t T, s *session, _ []byte) proto.Message {
			return &populatorv1.GetFillRequest{Id: newID(), Volume: s.volume(t)}
		},
		answer: func() proto.Message { return &populatorv1.GetFillResponse{} },
	},
	{
		name: "CleanupFill", needs: populatorv1.Capability_CAPABILITY_FILL,
		request: func(t T, s *session, _ []byte) proto.Message {
			return &populatorv1.CleanupFillRequest{Id: newID(), Volume: s.volume(t)}
		},
		answer: func() proto.Message { return &populatorv1.CleanupFillResponse{} },
	},
}

func startRequest(source *populatorv1.Source, id string, v *populatorv1.Volume) *populatorv1.StartFillRequest {
	return &populatorv1.StartFillRequest{Id: id, Source: source, Claim: claim(), Volume: v, Attempt: 1}
}

// served returns the methods that the plugin says it serves.
func (s *session) served() []rpc {
	var out []rpc
	for _, r := range rpcs {
		if r.needs == 0 || s.can(r.needs) {
			out = append(out, r)
		}
	}
	return out
}

// invoke calls a method within the deadline of a call.
func (s *session) invoke(ctx context.Context, r rpc, request proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer := r.answer()
	err := s.conn.Invoke(ctx, "/"+populatorv1.Populator_ServiceDesc.ServiceName+"/"+r.name, request, answer)
	return answer, err
}

// leave cleans up what a request may have begun, whatever became of it.
func (s *session) leave(t T, request proto.Message) {
	if start, ok := request.(*populatorv1.StartFillRequest); ok {
		s.cleanUp(t, start.GetId(), start.GetVolume(), false)
	}
}

// unanswered says whether an error is that of a plugin that gives no answer, or
// that falls over, rather than one that refuses.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown, codes.Canceled, codes.DataLoss:
		return true
	default:
		return false
	}
}

// refusal says whether an answer is one of a request that the plugin does not
// take: an error that ends the matter, or a failure in the answer.
func refusal(answer proto.Message, err error) bool {
	if err != nil {
		switch status.Code(err) {
		case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange:
			return true
		default:
			return false
		}
	}
	switch a := answer.(type) {
	case *populatorv1.ValidateSourceResponse:
		return a.GetInvalid() != ""
	case *populatorv1.ComputeWorkerResponse:
		return a.GetFailure() != nil
	case *populatorv1.StartFillResponse:
		return a.GetFill().GetState() == populatorv1.Fill_STATE_FAILED
	}
	return false
}

// said checks a text that users get to read.
func said(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty")
	case utf8.RuneCountInString(text) > 1024:
		return errors.New("it has more than 1024 characters")
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return errors.New("it has control characters in it")
		}
	}
	return nil
}
