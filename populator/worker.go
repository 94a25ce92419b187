package populator

import (
	"context"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A WorkerComputer computes the worker of one volume: what spec.worker of a
// Populator would say for it. Its values are taken as they are; nothing in them
// is an expression. The Pod finds its volume at $SLUICE_TARGET.
//
// Where a node has to be found for the volume first, there is none yet:
// r.Volume.Provisioned is false, and the worker is asked for its demands on a node.
//
// ComputeWorker has no effect of its own and may be called more than once for a
// volume. An error with a [Reason], or one marked [Permanent], is why the volume
// cannot be filled; any other says that the plugin cannot tell now, and the call
// is repeated.
type WorkerComputer[S any] interface {
	ComputeWorker(ctx context.Context, r Request[S]) (*v1alpha1.WorkerTemplate, error)
}

// WorkerFunc is a function that is a WorkerComputer.
type WorkerFunc[S any] func(ctx context.Context, r Request[S]) (*v1alpha1.WorkerTemplate, error)

// ComputeWorker calls the function.
func (f WorkerFunc[S]) ComputeWorker(ctx context.Context, r Request[S]) (*v1alpha1.WorkerTemplate, error) {
	return f(ctx, r)
}

// A Validator judges a source before anything is made for a claim of it. It
// looks at what the source says, not at whether the data can be reached.
//
// Validate returns nil for a valid source. An error is shown on the claim, so it
// names the field and says what would be right; but one that is marked
// [Unavailable] says that the plugin cannot tell now.
type Validator[S any] interface {
	Validate(ctx context.Context, s Source[S]) error
}

// ValidatorFunc is a function that is a Validator.
type ValidatorFunc[S any] func(ctx context.Context, s Source[S]) error

// Validate calls the function.
func (f ValidatorFunc[S]) Validate(ctx context.Context, s Source[S]) error { return f(ctx, s) }

// Prime is what the claim that a volume is provisioned for carries beside what
// Sluice puts there, for a provisioner or a policy that looks at it. Keys of
// kubernetes.io, k8s.io and sluice.dev are refused.
type Prime struct {
	Labels      map[string]string
	Annotations map[string]string
}

// A Primer decides what the prime carries. It has no other effect.
type Primer[S any] interface {
	Prime(ctx context.Context, s Source[S], c Claim) (Prime, error)
}

// PrimerFunc is a function that is a Primer.
type PrimerFunc[S any] func(ctx context.Context, s Source[S], c Claim) (Prime, error)

// Prime calls the function.
func (f PrimerFunc[S]) Prime(ctx context.Context, s Source[S], c Claim) (Prime, error) {
	return f(ctx, s, c)
}
