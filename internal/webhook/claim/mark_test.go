package claim

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-dev/sluice/internal/manager"
)

func TestMark(t *testing.T) {
	const key = "sluice.dev/data-source-namespace"
	cases := map[string]struct {
		reason      string
		operation   admissionv1.Operation
		annotations map[string]string
		namespace   *string // of the source; nil: no dataSourceRef
		want        string  // the JSON patch
		denied      bool
	}{
		"Marked":        {reason: "A namespace is copied.", namespace: ptr.To("other"), want: `[{"op":"add","path":"/metadata/annotations","value":{"` + key + `":"other"}}]`},
		"MarkedBeside":  {reason: "Beside other annotations.", annotations: map[string]string{"a": "b"}, namespace: ptr.To("other"), want: `[{"op":"add","path":"/metadata/annotations/sluice.dev~1data-source-namespace","value":"other"}]`},
		"SameTwice":     {reason: "What says the same already stays.", annotations: map[string]string{key: "other"}, namespace: ptr.To("other"), want: "null"},
		"Contradiction": {reason: "Two namespaces are one too many.", annotations: map[string]string{key: "third"}, namespace: ptr.To("other"), want: "null", denied: true},
		"NoNamespace":   {reason: "The annotation alone is the way that works everywhere.", annotations: map[string]string{key: "other"}, namespace: ptr.To(""), want: "null"},
		"NoSource":      {reason: "Without a source there is nothing to mark.", want: "null"},
		"Update":        {reason: "A source cannot change later.", operation: admissionv1.Update, namespace: ptr.To("other"), want: "null"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", Annotations: tc.annotations}}
			if tc.namespace != nil {
				claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("hello.k8s.io"), Kind: "Hello", Name: "x", Namespace: tc.namespace}
			}
			raw, err := json.Marshal(claim)
			if err != nil {
				t.Fatal(err)
			}
			if tc.operation == "" {
				tc.operation = admissionv1.Create
			}
			r := NewMarker(manager.Scheme()).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "1", Operation: tc.operation, Object: runtime.RawExtension{Raw: raw},
			}})
			if r.Allowed == tc.denied {
				t.Fatalf("%s\nallowed: %t, want %t (%+v)", tc.reason, r.Allowed, !tc.denied, r.Result)
			}
			got, err := json.Marshal(r.Patches)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s\npatch: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
