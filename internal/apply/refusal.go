package apply

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// maxMessage bounds what is kept of an answer: admission plugins can be wordy.
const maxMessage = 1024

// refusedOr tells a refusal, which trying again at once does not change, from
// an error, which it may.
func refusedOr(err error, verb string, o client.Object) (Outcome, error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// What was to be written would be deleted again; the claim goes too.
		return Outcome{Stale: true}, nil
	}
	if reason := refusalReason(err); reason != "" {
		return refusal(reason, err), nil
	}
	return Outcome{}, fmt.Errorf("%s %s %q: %w", verb, kindOf(o), client.ObjectKeyFromObject(o), err)
}

// remedies are what a user can do about a refusal, before the API server's own
// text, which names the objects.
var remedies = map[string]string{
	v1alpha1.ReasonQuotaExceeded:      "Raise the quota, or delete what uses it: ",
	v1alpha1.ReasonPodSecurityRefused: "Correct the worker of the Populator, or the namespace's Pod Security level: ",
	v1alpha1.ReasonRequestRefused:     "The API server refuses a request, which is tried again: ",
}

func refusal(reason string, err error) Outcome {
	return Outcome{Refused: &populate.Refusal{Reason: reason, Message: truncate(remedies[reason] + message(err))}}
}

// turnedAway says that a request ended before anything was stored, though not
// for anything that is wrong with it: the API server has too much to do, or
// cannot reach an admission webhook. A create must know, since one in doubt
// costs an attempt; every other write is tried again like after any error,
// which also keeps it from hiding what was refused before.
func turnedAway(err error) bool {
	return apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// refusalReason classifies an answer of the API server; empty means an error
// like any other. Quota and Pod Security have no status reason of their own:
// both answer Forbidden, and only their text tells them apart.
func refusalReason(err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"),
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "failed quota"):
		return v1alpha1.ReasonQuotaExceeded
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return v1alpha1.ReasonPodSecurityRefused
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return v1alpha1.ReasonRequestRefused
	case apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable:
		return v1alpha1.ReasonRequestRefused
	}
	return ""
}

// message is the API server's own text, without what was wrapped around it.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

func truncate(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-3], "") + "..."
}

// kindOf is the name of an object's kind, for messages.
func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(o).Elem().Name()
}
