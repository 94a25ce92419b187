// Package definition finds out how a cluster defines a kind: as which
// resource, in which version, with which schema.
package definition

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Definition is what a cluster says about one kind.
type Definition struct {
	// Resource is the kind's resource in the version that objects are read in;
	// empty when the cluster does not serve the kind.
	Resource schema.GroupVersionResource

	// Schema of that version; nil when it is not known, as for kinds that an
	// aggregated API server defines.
	Schema *apiextensionsv1.JSONSchemaProps
}

// Exists says whether the cluster serves the kind.
func (d Definition) Exists() bool { return d.Resource.Resource != "" }

// Finder finds definitions.
type Finder struct {
	// Mapper knows the served kinds.
	Mapper meta.RESTMapper

	// Definitions reads CustomResourceDefinitions. They are large and seldom
	// asked for, so this should read from the API server, not from a cache.
	Definitions client.Reader
}

// Find returns the definition of a kind. A kind that does not exist is no
// error.
func (f *Finder) Find(ctx context.Context, kind schema.GroupKind) (Definition, error) {
	mapping, err := f.Mapper.RESTMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return Definition{}, nil
	case err != nil:
		return Definition{}, fmt.Errorf("look up kind %q: %w", kind, err)
	}
	d := Definition{Resource: mapping.Resource}
	var crd apiextensionsv1.CustomResourceDefinition
	err = f.Definitions.Get(ctx, client.ObjectKey{Name: mapping.Resource.GroupResource().String()}, &crd)
	switch {
	case apierrors.IsNotFound(err):
		return d, nil
	case err != nil:
		return Definition{}, fmt.Errorf("get definition of kind %q: %w", kind, err)
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name == mapping.Resource.Version && v.Served && v.Schema != nil {
			d.Schema = v.Schema.OpenAPIV3Schema
		}
	}
	return d, nil
}
