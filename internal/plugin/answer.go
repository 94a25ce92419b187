package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Bounds of what a plugin may ask for.
const (
	maxLabels      = 32
	maxAnnotations = 64 << 10
	pollDefault    = 5 * time.Second
	pollLeast      = time.Second
	pollMost       = 5 * time.Minute
	cleanupMost    = time.Minute
)

// failed makes an answer of the error that a call ended with.
func failed(call populate.Call, err error) populate.Answer {
	s := status.Convert(err)
	text := worker.Clean(s.Message())
	if text == "" {
		text = s.Code().String()
	}
	refused := func(reason string, permanent bool) populate.Answer {
		return populate.Answer{Failure: &populate.Failure{Reason: reason, Message: "The plugin refused: " + text, Permanent: permanent}}
	}
	switch s.Code() {
	case codes.InvalidArgument:
		return refused(v1alpha1.ReasonInvalidSource, true)
	case codes.NotFound:
		switch call {
		case populate.CallStatus:
			return populate.Answer{Unknown: true}
		case populate.CallCleanup:
			return populate.Answer{Done: true}
		case populate.CallValidate, populate.CallMutate, populate.CallCompute, populate.CallStart:
		}
		return refused(v1alpha1.ReasonPluginFailed, false)
	case codes.FailedPrecondition, codes.Aborted, codes.AlreadyExists, codes.OutOfRange:
		if call != populate.CallCleanup { // a plugin is asked to clean up until it has
			return refused(v1alpha1.ReasonPluginFailed, false)
		}
	case codes.Unimplemented:
		if call == populate.CallCleanup {
			return populate.Answer{Done: true} // it cannot have begun anything
		}
	case codes.ResourceExhausted:
		if !strings.Contains(text, "larger than max") { // gRPC's own word for what is too large
			return populate.Answer{Reason: v1alpha1.ReasonWaitingForSlot, Unavailable: "The plugin has enough to do: " + text}
		}
	default:
	}
	return unavailable("The plugin gives no answer to " + string(call) + ": " + text)
}

func unavailable(message string) populate.Answer {
	return populate.Answer{Reason: v1alpha1.ReasonPluginUnavailable, Unavailable: worker.Clean(message)}
}

func validated(r *populatorv1.ValidateSourceResponse) populate.Answer {
	return populate.Answer{Invalid: worker.Clean(r.GetInvalid())}
}

// mutated judges what a plugin wants on the prime.
func mutated(r *populatorv1.MutatePrimeResponse) populate.Answer {
	path := field.NewPath("prime")
	errs := metav1validation.ValidateLabels(r.GetLabels(), path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(r.GetAnnotations(), path.Child("annotations"))...)
	if n := len(r.GetLabels()); n > maxLabels {
		errs = append(errs, field.TooMany(path.Child("labels"), n, maxLabels))
	}
	size := 0
	for k, v := range r.GetAnnotations() {
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		errs = append(errs, field.TooLong(path.Child("annotations"), "", maxAnnotations))
	}
	for _, k := range slices.Sorted(maps.Keys(r.GetLabels())) {
		errs = append(errs, reserved(k, path.Child("labels").Key(k))...)
	}
	for _, k := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		errs = append(errs, reserved(k, path.Child("annotations").Key(k))...)
	}
	if len(errs) > 0 {
		return populate.Answer{Failure: &populate.Failure{Reason: v1alpha1.ReasonPluginFailed, Permanent: true,
			Message: "What the plugin wants on the prime is refused: " + worker.Clean(errs[0].Error())}}
	}
	return populate.Answer{Labels: r.GetLabels(), Annotations: r.GetAnnotations()}
}

// reserved refuses keys by which Kubernetes or Sluice is told something.
func reserved(key string, path *field.Path) field.ErrorList {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return nil
	}
	for _, d := range []string{"kubernetes.io", "k8s.io", "sluice.dev"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return field.ErrorList{field.Forbidden(path, "keys of "+d+" are not a plugin's to write")}
		}
	}
	return nil
}

// computed reads the worker that a plugin computed. Whether it is one that may
// run is judged when it is rendered.
func computed(r *populatorv1.ComputeWorkerResponse) populate.Answer {
	if f := r.GetFailure(); f != nil {
		return populate.Answer{Failure: failure(f)}
	}
	var w v1alpha1.WorkerTemplate
	d := json.NewDecoder(bytes.NewReader(r.GetWorkerJson()))
	d.DisallowUnknownFields()
	err := d.Decode(&w)
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		return populate.Answer{Failure: &populate.Failure{Reason: v1alpha1.ReasonTemplateInvalid, Permanent: true,
			Message: worker.Clean(fmt.Sprintf("The worker that the plugin computed cannot be read: %v", err))}}
	}
	return populate.Answer{Worker: &w}
}

// failure is a plugin's word for why it did not do what it was asked. Reasons
// are those of workers' results, and its own.
func failure(f *populatorv1.Failure) *populate.Failure {
	reason := f.GetReason()
	if reason != v1alpha1.ReasonInvalidSource && !worker.Known(reason) || reason == v1alpha1.ReasonWorkerFailed {
		reason = v1alpha1.ReasonPluginFailed
	}
	message := worker.Clean(f.GetMessage())
	if message == "" {
		message = "The plugin says no more than that it failed"
	}
	return &populate.Failure{Reason: reason, Message: message, Permanent: f.GetPermanent()}
}

// filling reads how far a fill is. An answer about another fill or volume is no
// answer.
func filling(f *populatorv1.Fill, id, handle string) populate.Answer {
	switch {
	case f == nil:
		return unavailable("The plugin's answer says nothing about the fill")
	case f.GetId() != id:
		return unavailable("The plugin's answer is about another fill than the one that was asked for")
	case f.GetCsiHandle() != handle:
		return unavailable("The plugin's answer is about another volume than the one that was asked for")
	}
	a := populate.Answer{
		Message:    worker.Clean(f.GetMessage()),
		Bytes:      max(f.GetBytesDone(), 0),
		TotalBytes: max(f.GetBytesTotal(), 0),
	}
	switch f.GetState() {
	case populatorv1.Fill_STATE_SUCCEEDED:
		a.State = populate.FillSucceeded
		if worker.Digest(f.GetDigest()) {
			a.Digest = f.GetDigest()
		}
	case populatorv1.Fill_STATE_FAILED:
		a.State, a.Failure = populate.FillFailed, failure(f.GetFailure())
	default: // a state of a later version of the contract is not an end that is known here
		a.RetryAfter = again(f.GetRetryAfter(), pollMost)
	}
	return a
}

func cleaned(r *populatorv1.CleanupFillResponse) populate.Answer {
	if r.GetDone() {
		return populate.Answer{Done: true}
	}
	return populate.Answer{Message: worker.Clean(r.GetMessage()), RetryAfter: again(r.GetRetryAfter(), cleanupMost)}
}

// again is when a plugin wants to be asked again, within bounds.
func again(d *durationpb.Duration, most time.Duration) time.Duration {
	if d == nil {
		return pollDefault
	}
	return min(max(d.AsDuration(), pollLeast), most)
}
