package mover

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/sluice-dev/sluice/api/worker"
)

// Error is a failure that a user can be told the reason of.
type Error struct {
	// Reason is one of the reasons of package worker.
	Reason string
	// Permanent says that trying again cannot help.
	Permanent bool
	// Err is what happened; its text is shown to users and holds no secret.
	Err error
}

// Error returns the text of the failure alone; the reason stands beside it
// wherever it is shown.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what happened.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks a failure that another attempt would meet again.
func Permanent(reason string, err error) error {
	return &Error{Reason: reason, Permanent: true, Err: err}
}

// Retryable marks a failure that another attempt may not meet.
func Retryable(reason string, err error) error {
	return &Error{Reason: reason, Err: err}
}

// Classify returns the outermost reason that err carries. An error without one
// may be retried and is a WorkerFailed.
func Classify(err error) (reason string, permanent bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason, e.Permanent
	}
	return worker.ReasonWorkerFailed, false
}

// VolumeError gives an error of writing to a volume its reason: a full volume
// and one that may not be written to stay so, anything else may pass.
func VolumeError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return Permanent(worker.ReasonVolumeTooSmall, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return Permanent(worker.ReasonVolumeNotWritable, err)
	default:
		return err
	}
}
