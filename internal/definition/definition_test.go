package definition

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var hello = schema.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}

// crd defines Hello in versions v1alpha1 and v1, each with a schema that says
// so.
func crd(served bool) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, served bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: served, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Description: name},
		}}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "hellos.hello.k8s.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1alpha1", true), version("v1", served)},
		},
	}
}

func TestFind(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason string
		known  bool // to the mapper
		crd    *apiextensionsv1.CustomResourceDefinition
		fails  error
		exists bool
		schema string
	}{
		"Unknown":   {reason: "A kind that nobody serves is no error."},
		"Preferred": {reason: "The schema is that of the version in which objects are read.", known: true, crd: crd(true), exists: true, schema: "v1"},
		"Retired":   {reason: "A version that is no longer served has none.", known: true, crd: crd(false), exists: true},
		"NoCRD":     {reason: "A kind of an aggregated API server has no schema here.", known: true, exists: true},
		"Fails":     {reason: "A read that fails is an error.", known: true, crd: crd(true), fails: boom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: hello.Group, Version: "v1"}, {Group: hello.Group, Version: "v1alpha1"}})
			if tc.known {
				mapper.Add(hello.WithVersion("v1"), meta.RESTScopeNamespace)
				mapper.Add(hello.WithVersion("v1alpha1"), meta.RESTScopeNamespace)
			}
			s := runtime.NewScheme()
			if err := apiextensionsv1.AddToScheme(s); err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.fails != nil {
						return tc.fails
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			if tc.crd != nil {
				b.WithObjects(tc.crd)
			}
			got, err := (&Finder{Mapper: mapper, Definitions: b.Build()}).Find(t.Context(), hello)
			if !errors.Is(err, tc.fails) {
				t.Fatalf("%s\nFind: %v, want %v", tc.reason, err, tc.fails)
			}
			found := ""
			if got.Schema != nil {
				found = got.Schema.Description
			}
			if got.Exists() != tc.exists || found != tc.schema {
				t.Errorf("%s\nFind: exists %t with the schema of %q, want %t with %q", tc.reason, got.Exists(), found, tc.exists, tc.schema)
			}
			if got.Exists() && got.Resource.Resource != "hellos" {
				t.Errorf("resource %v, want hellos", got.Resource)
			}
		})
	}
}
