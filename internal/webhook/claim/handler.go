// Package claim looks at new claims: it warns about those that nobody will fill,
// and marks those whose source the API server might drop. It answers from caches
// only, and keeps quiet when in doubt.
package claim

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/observe"
	"github.com/sluice-dev/sluice/internal/registration"
)

// Path is where the handler is served.
const Path = "/warn-claim"

// Finder says who registered a source kind.
type Finder interface {
	Find(ctx context.Context, kind schema.GroupKind) (registration.Registration, error)
}

// Namespaces says which namespaces Sluice keeps out of.
type Namespaces interface {
	Out(ctx context.Context, namespace string) (bool, error)
}

// Handler warns about claims on create.
type Handler struct {
	Registrations Finder
	Namespaces    Namespaces
	decoder       admission.Decoder
}

var _ admission.Handler = (*Handler)(nil)

// New returns a Handler.
func New(f Finder, n Namespaces, s *runtime.Scheme) *Handler {
	return &Handler{Registrations: f, Namespaces: n, decoder: admission.NewDecoder(s)}
}

// Setup adds the handlers to the manager's webhook server, if it has one.
func Setup(_ context.Context, p manager.Parts) error {
	if p.Options.Webhooks == nil {
		return nil
	}
	p.Kinds.Watch(registration.Kind, kinds.Full)
	finder := &registration.Finder{Cache: p.Manager.GetCache(), Kinds: p.Kinds}
	server := p.Manager.GetWebhookServer()
	server.Register(Path, &webhook.Admission{Handler: New(finder, p.Namespaces(), p.Manager.GetScheme())})
	server.Register(MarkPath, &webhook.Admission{Handler: NewMarker(p.Manager.GetScheme())})
	return nil
}

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := h.decoder.Decode(req, claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read claim %q: %w", req.Name, err))
	}
	ref, ok := observe.SourceOf(claim)
	if !ok || claim.Spec.VolumeName != "" {
		// Claims and snapshots are the CSI driver's; a claim that names its
		// volume takes it as it is.
		return admission.Allowed("")
	}
	found, err := h.Registrations.Find(ctx, ref.Kind)
	if err != nil {
		logf.FromContext(ctx).Error(err, "find out who fills claims", "kind", ref.Kind.String())
		return admission.Allowed("")
	}
	if problem := found.Problem(); problem != "" {
		return admission.Allowed("").WithWarnings(v1alpha1.ReasonUnrecognizedKind + ": " + problem)
	}
	if found.State != registration.Served {
		return admission.Allowed("")
	}
	out, err := h.Namespaces.Out(ctx, req.Namespace)
	switch {
	case err != nil:
		logf.FromContext(ctx).Error(err, "find out whether claims are filled", "namespace", req.Namespace)
	case out:
		return admission.Allowed("").WithWarnings(fmt.Sprintf(
			"%s: Sluice keeps out of namespace %q, so nobody fills the claim; create it in another", v1alpha1.ReasonUnsupportedClaim, req.Namespace))
	}
	return admission.Allowed("")
}
