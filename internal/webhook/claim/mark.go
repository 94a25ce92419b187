package claim

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// MarkPath is where a Marker is served.
const MarkPath = "/mark-claim"

// A Marker copies the namespace in a claim's dataSourceRef into the annotation
// AnnotationSourceNamespace, before the API server has looked at the claim.
//
// An API server whose gate CrossNamespaceVolumeDataSource is off (the default)
// drops a dataSourceRef with a namespace whole and without a word, and the claim
// would be bound to an empty volume. The mark outlives that: a claim that bears
// it and has no dataSourceRef afterwards is refused by a policy of the chart.
// So nobody has to know which API servers have the gate on, and where it is on
// the mark changes nothing.
type Marker struct{ decoder admission.Decoder }

var _ admission.Handler = (*Marker)(nil)

// NewMarker returns a Marker.
func NewMarker(s *runtime.Scheme) *Marker { return &Marker{decoder: admission.NewDecoder(s)} }

// Handle implements admission.Handler.
func (m *Marker) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := m.decoder.Decode(req, claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read claim %q: %w", req.Name, err))
	}
	if claim.Spec.DataSourceRef == nil {
		return admission.Allowed("")
	}
	namespace := ptr.Deref(claim.Spec.DataSourceRef.Namespace, "")
	mark, marked := claim.Annotations[v1alpha1.AnnotationSourceNamespace]
	switch {
	case namespace == "" || mark == namespace:
		return admission.Allowed("")
	case marked:
		return admission.Denied(fmt.Sprintf("spec.dataSourceRef.namespace is %q and annotation %s is %q: leave one of them out",
			namespace, v1alpha1.AnnotationSourceNamespace, mark))
	case claim.Annotations == nil:
		return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationSourceNamespace: namespace}))
	}
	return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/annotations/"+pointer.Replace(v1alpha1.AnnotationSourceNamespace), namespace))
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
