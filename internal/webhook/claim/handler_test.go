package claim

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-dev/sluice/internal/manager"
	"github.com/sluice-dev/sluice/internal/registration"
)

type finder struct {
	found registration.Registration
	err   error
	asked []schema.GroupKind
}

func (f *finder) Find(_ context.Context, kind schema.GroupKind) (registration.Registration, error) {
	f.asked = append(f.asked, kind)
	return f.found, f.err
}

// outside is what is known of a namespace.
type outside struct {
	out bool
	err error
}

func (o outside) Out(context.Context, string) (bool, error) { return o.out, o.err }

func TestHandle(t *testing.T) {
	hello := schema.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}
	nobody := registration.Registration{Kind: hello, State: registration.Nobody}
	ref := func(group, kind string) corev1.PersistentVolumeClaimSpec {
		r := &corev1.TypedObjectReference{Kind: kind, Name: "x"}
		if group != "" {
			r.APIGroup = ptr.To(group)
		}
		return corev1.PersistentVolumeClaimSpec{DataSourceRef: r}
	}
	cases := map[string]struct {
		reason    string
		operation admissionv1.Operation
		spec      corev1.PersistentVolumeClaimSpec
		finder    finder
		outside   outside
		warned    string
	}{
		"Nobody": {
			reason: "A claim that nobody will fill is warned about.", spec: ref("hello.k8s.io", "Hello"),
			finder: finder{found: nobody}, warned: "UnrecognizedDataSourceKind: Nobody fills claims with a data source of kind Hello.hello.k8s.io",
		},
		"NotAccepted": {
			reason: "The Populator that is wrong is named.", spec: ref("hello.k8s.io", "Hello"),
			finder: finder{found: registration.Registration{Kind: hello, State: registration.NotAccepted, Name: "hello", Reason: "TemplateInvalid"}},
			warned: `Populator "hello"`,
		},
		"Served": {reason: "A claim that is served is not.", spec: ref("hello.k8s.io", "Hello"), finder: finder{found: registration.Registration{State: registration.Served}}},
		"Excluded": {
			reason: "In a namespace that is left alone nobody fills it.", spec: ref("hello.k8s.io", "Hello"),
			finder: finder{found: registration.Registration{State: registration.Served}}, outside: outside{out: true},
			warned: `UnsupportedClaim: Sluice keeps out of namespace "default"`,
		},
		"ExcludedAndForeign": {
			reason: "Another controller may not keep out of it.", spec: ref("hello.k8s.io", "Hello"),
			finder: finder{found: registration.Registration{State: registration.Foreign}}, outside: outside{out: true},
		},
		"NamespaceUnknown": {
			reason: "In doubt nothing is said, nor refused.", spec: ref("hello.k8s.io", "Hello"),
			finder: finder{found: registration.Registration{State: registration.Served}}, outside: outside{err: errors.New("boom")},
		},
		"Foreign":  {reason: "Nor is one that another controller serves.", spec: ref("hello.k8s.io", "Hello"), finder: finder{found: registration.Registration{State: registration.Foreign}}},
		"Unknown":  {reason: "In doubt nothing is said.", spec: ref("hello.k8s.io", "Hello"), finder: finder{found: registration.Registration{State: registration.Unknown}}},
		"Error":    {reason: "A look-up that fails is no reason to warn, or to refuse.", spec: ref("hello.k8s.io", "Hello"), finder: finder{err: errors.New("boom")}},
		"Claim":    {reason: "A claim as a source is the CSI driver's.", spec: ref("", "PersistentVolumeClaim"), finder: finder{found: nobody}},
		"Snapshot": {reason: "A snapshot as well.", spec: ref("snapshot.storage.k8s.io", "VolumeSnapshot"), finder: finder{found: nobody}},
		"NoSource": {reason: "An empty claim asks for nothing.", finder: finder{found: nobody}},
		"Update":   {reason: "A source cannot change later.", operation: admissionv1.Update, spec: ref("hello.k8s.io", "Hello"), finder: finder{found: nobody}},
		"PreBound": {
			reason: "A claim that names its volume takes it as it is.",
			spec: func() corev1.PersistentVolumeClaimSpec {
				s := ref("hello.k8s.io", "Hello")
				s.VolumeName = "pv"
				return s
			}(),
			finder: finder{found: nobody},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(&corev1.PersistentVolumeClaim{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: tc.spec,
			})
			if err != nil {
				t.Fatal(err)
			}
			if tc.operation == "" {
				tc.operation = admissionv1.Create
			}
			r := New(&tc.finder, tc.outside, manager.Scheme()).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "1", Operation: tc.operation, Namespace: "default", Name: "c", Object: runtime.RawExtension{Raw: raw},
			}})
			if !r.Allowed {
				t.Fatalf("%s\nrefused: %+v", tc.reason, r.Result)
			}
			switch {
			case tc.warned == "" && len(r.Warnings) > 0, tc.warned != "" && (len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], tc.warned)):
				t.Errorf("%s\nwarnings %q, want %q", tc.reason, r.Warnings, tc.warned)
			}
			for _, w := range r.Warnings {
				if len(w) > 256 {
					t.Errorf("a warning of %d characters may be cut: %q", len(w), w)
				}
			}
		})
	}
}
