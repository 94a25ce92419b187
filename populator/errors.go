package populator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/api/worker"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Reason is the one word for why a volume cannot be filled. It is shown in the
// events of the claim and in its Population. A failure without one is shown as
// PluginFailed.
type Reason string

// The reasons that a plugin may give.
const (
	// SourceUnreachable: the server or storage that has the data cannot be reached.
	SourceUnreachable Reason = worker.ReasonSourceUnreachable
	// SourceForbidden: it does not let us read the data.
	SourceForbidden Reason = worker.ReasonSourceForbidden
	// SourceMissing: it answers that there is no such thing.
	SourceMissing Reason = worker.ReasonSourceMissing
	// SourceEmpty: there is nothing in it.
	SourceEmpty Reason = worker.ReasonSourceEmpty
	// Truncated: the data stopped too early.
	Truncated Reason = worker.ReasonTruncated
	// DigestMismatch: the data is other than its digest says.
	DigestMismatch Reason = worker.ReasonDigestMismatch
	// UnsupportedFormat: the data is not of a form that can be filled from.
	UnsupportedFormat Reason = worker.ReasonUnsupportedFormat
	// VolumeTooSmall: there is more data than the volume holds.
	VolumeTooSmall Reason = worker.ReasonVolumeTooSmall
	// SecretNotOffered: the owner of a Secret did not offer it.
	SecretNotOffered Reason = worker.ReasonSecretNotOffered
	// AddressNotAllowed: the data is at an address that must not be talked to.
	AddressNotAllowed Reason = worker.ReasonAddressNotAllowed
	// InvalidSource: the source does not say what to fill with.
	InvalidSource Reason = "InvalidSource"
)

// Errorf returns an error with the reason: the volume cannot be filled in this
// attempt. The text is shown to the user. It is one sentence that says what is
// wrong with what, and holds nothing secret. An error behind %w stays found.
func (r Reason) Errorf(format string, args ...any) error {
	return &failure{reason: r, err: fmt.Errorf(format, args...)}
}

// Permanent marks an error as one that no other attempt would get around, until
// the source or its Populator is changed. It keeps the error's reason.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &failure{reason: ReasonOf(err), permanent: true, err: err}
}

// ReasonOf returns the reason of an error, or nothing.
func ReasonOf(err error) Reason {
	var f *failure
	if errors.As(err, &f) {
		return f.reason
	}
	return ""
}

// IsPermanent says whether an error is marked as permanent.
func IsPermanent(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.permanent
}

// failure is an error that is the result of filling.
type failure struct {
	reason    Reason
	permanent bool
	err       error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// isFailure says whether an error is an outcome, rather than one that says
// nothing about the work.
func isFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}

// ErrUnknownFill says that there is no fill of an id.
var ErrUnknownFill = errors.New("no such fill")

// call is an error that says how the call went and nothing about the work.
type call struct {
	code codes.Code
	err  error
}

func (c *call) Error() string { return c.err.Error() }
func (c *call) Unwrap() error { return c.err }

// Busy marks an error as one of a plugin, or its storage, that has enough to do.
// The claim waits its turn and loses no attempt. Of a [Filler]'s Start it says that
// nothing was begun.
func Busy(err error) error {
	if err == nil {
		return nil
	}
	return &call{code: codes.ResourceExhausted, err: err}
}

// Unavailable marks an error as one of the plugin's surroundings: nothing can be
// said about the source or the work now. The call is repeated, and the claim
// loses no attempt. Of a [Filler]'s Start it says that nothing was begun. Errors
// without any mark are taken so, except by [Validator] and [Background].
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &call{code: codes.Unavailable, err: err}
}

// notYet is the error of a clean-up that goes on.
type notYet struct {
	after   time.Duration
	message string
}

func (n *notYet) Error() string { return n.message }

// NotYet is what a [Cleaner] returns while something of the fill is left: the
// message says what, and after is when to ask again.
func NotYet(after time.Duration, message string) error {
	return &notYet{after: after, message: message}
}

// wireFailure is an outcome as it is sent.
func wireFailure(err error) *populatorv1.Failure {
	return &populatorv1.Failure{
		Reason:    string(ReasonOf(err)),
		Message:   worker.Clean(err.Error()),
		Permanent: IsPermanent(err),
	}
}

// callErrorf returns an error that ends a call with a code.
func callErrorf(code codes.Code, format string, args ...any) error {
	return &call{code: code, err: fmt.Errorf(format, args...)}
}

// wireError is an error that is no outcome as it is sent.
func wireError(err error) error {
	var c *call
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		return status.Error(c.code, worker.Clean(err.Error()))
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, worker.Clean(err.Error()))
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, worker.Clean(err.Error()))
	}
	// Codes of other services, that the plugin called, mean nothing here.
	return status.Error(codes.Unavailable, worker.Clean(err.Error()))
}

// isMarked says whether an error has a code already.
func isMarked(err error) bool {
	var c *call
	return errors.As(err, &c)
}

// isCall says whether an error is about how the call went.
func isCall(err error) bool {
	return isMarked(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
