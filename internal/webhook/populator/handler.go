// Package populator tells at once what is wrong with a Populator. It is no
// guard: the controller compiles every Populator again before it is served, so
// while no webhook answers only the early message is missing.
package populator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/template"
)

// Path is where the handler is served.
const Path = "/validate-populator"

// Finder finds the definition of a source kind.
type Finder interface {
	Find(ctx context.Context, kind schema.GroupKind) (definition.Definition, error)
}

// Handler judges Populators on create and update.
type Handler struct{ Definitions Finder }

var _ admission.Handler = (*Handler)(nil)

// Setup adds the handler to the manager's webhook server, if it has one.
func Setup(_ context.Context, p manager.Parts) error {
	if p.Options.Webhooks == nil {
		return nil
	}
	p.Manager.GetWebhookServer().Register(Path, &webhook.Admission{Handler: &Handler{Definitions: &definition.Finder{
		Mapper:      p.Manager.GetRESTMapper(),
		Definitions: p.Manager.GetAPIReader(),
	}}})
	return nil
}

// Handle implements admission.Handler. A Populator that is on its way out is
// not looked at: whatever is wrong with it must not keep it from going.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	populator := &v1alpha1.Populator{}
	strict, err := json.UnmarshalStrict(req.Object.Raw, populator)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read Populator %q: %w", req.Name, err))
	}
	if populator.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	kind := schema.GroupKind{Group: populator.Spec.SourceKind.Group, Kind: populator.Spec.SourceKind.Kind}
	found, err := h.Definitions.Find(ctx, kind)
	known := err == nil
	if !known {
		// The schema only makes the answer better; the controller asks again.
		logf.FromContext(ctx).Error(err, "find definition of source kind", "kind", kind.String())
	}
	errs := unknownFields(strict)
	_, problems := template.Compile(&populator.Spec, found.Schema)
	if errs = append(errs, problems...); len(errs) > 0 {
		return refused(populator.Name, errs)
	}
	response := admission.Allowed("")
	if known && !found.Exists() {
		response = response.WithWarnings(fmt.Sprintf(
			"no kind %s exists in this cluster yet: the Populator is served once its CustomResourceDefinition does; check the spelling of spec.sourceKind", kind))
	}
	return response
}

// unknownFields turns the complaints of strict decoding into errors with paths.
// The API server drops fields that its definition of Populator does not have
// before it asks; those it has and this manager does not are found here.
func unknownFields(strict []error) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range strict {
		var path interface{ FieldPath() string }
		switch {
		case errors.As(problem, &path):
			errs = append(errs, field.Forbidden(field.NewPath(path.FieldPath()), strings.TrimSpace(kindOfProblem(problem))))
		default:
			errs = append(errs, field.Forbidden(nil, problem.Error()))
		}
	}
	return errs
}

// kindOfProblem is the problem without the path at its end.
func kindOfProblem(problem error) string {
	text, _, _ := strings.Cut(problem.Error(), `"`)
	return text
}

func refused(name string, errs field.ErrorList) admission.Response {
	status := apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Populator").GroupKind(), name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}
