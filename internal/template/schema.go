package template

import (
	"sort"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Names of the types that the variables have.
const (
	typeSource         = "sluice.Source"
	typeSourceMetadata = "sluice.Source.metadata"
	typeClaim          = "sluice.Claim"
	typeVolume         = "sluice.Volume"
)

// An object is a CEL object type. Values are plain JSON maps at run time, so
// types only serve to find mistakes early.
type object struct {
	fields map[string]*cel.Type
	// open objects may have other fields too, of any type.
	open bool
}

// A typeProvider knows the types of source, claim and volume besides those of
// the provider it embeds.
type typeProvider struct {
	types.Provider
	objects map[string]object
}

func newTypeProvider(base types.Provider, schema *apiextensionsv1.JSONSchemaProps) *typeProvider {
	labels := cel.MapType(cel.StringType, cel.StringType)
	p := &typeProvider{Provider: base, objects: map[string]object{
		typeClaim: {fields: map[string]*cel.Type{
			"name":        cel.StringType,
			"namespace":   cel.StringType,
			"uid":         cel.StringType,
			"labels":      labels,
			"annotations": labels,
			"spec":        cel.DynType,
		}},
		typeVolume: {fields: map[string]*cel.Type{
			"name":     cel.StringType,
			"mode":     cel.StringType,
			"capacity": cel.StringType,
		}},
		typeSourceMetadata: {open: true, fields: map[string]*cel.Type{
			"name":              cel.StringType,
			"namespace":         cel.StringType,
			"uid":               cel.StringType,
			"resourceVersion":   cel.StringType,
			"creationTimestamp": cel.StringType,
			"generation":        cel.IntType,
			"labels":            labels,
			"annotations":       labels,
		}},
	}}
	source := object{open: true, fields: map[string]*cel.Type{}}
	if schema != nil {
		source = p.object(typeSource, schema)
	}
	source.fields["apiVersion"] = cel.StringType
	source.fields["kind"] = cel.StringType
	source.fields["metadata"] = cel.ObjectType(typeSourceMetadata)
	p.objects[typeSource] = source
	return p
}

// object declares the properties of schema as the fields of an object type.
func (p *typeProvider) object(name string, schema *apiextensionsv1.JSONSchemaProps) object {
	o := object{fields: map[string]*cel.Type{}, open: isTrue(schema.XPreserveUnknownFields)}
	for field, property := range schema.Properties {
		o.fields[field] = p.declare(name+"."+field, &property)
	}
	return o
}

// declare returns the type that values of schema have when they are read from
// JSON. Where that is not one type (a number may be read as an integer) it is
// dynamic: a type that is wrong now and then would refuse good expressions.
func (p *typeProvider) declare(name string, schema *apiextensionsv1.JSONSchemaProps) *cel.Type {
	if schema.XIntOrString || schema.XEmbeddedResource || schema.Nullable {
		return cel.DynType
	}
	switch schema.Type {
	case "string":
		return cel.StringType
	case "integer":
		return cel.IntType
	case "boolean":
		return cel.BoolType
	case "array":
		if schema.Items == nil || schema.Items.Schema == nil {
			return cel.ListType(cel.DynType)
		}
		return cel.ListType(p.declare(name+"[]", schema.Items.Schema))
	case "object":
		if len(schema.Properties) > 0 {
			p.objects[name] = p.object(name, schema)
			return cel.ObjectType(name)
		}
		if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
			return cel.MapType(cel.StringType, p.declare(name+"{}", schema.AdditionalProperties.Schema))
		}
	}
	return cel.DynType
}

// FindStructType implements types.Provider.
func (p *typeProvider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *typeProvider) FindStructFieldNames(name string) ([]string, bool) {
	o, ok := p.objects[name]
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	names := make([]string, 0, len(o.fields))
	for field := range o.fields {
		names = append(names, field)
	}
	sort.Strings(names)
	return names, true
}

// FindStructFieldType implements types.Provider. It gives no accessors, so that
// CEL reads the field of a map by its key.
func (p *typeProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	o, ok := p.objects[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	if t, ok := o.fields[field]; ok {
		return &types.FieldType{Type: t}, true
	}
	if o.open {
		return &types.FieldType{Type: types.DynType}, true
	}
	return nil, false
}

func isTrue(b *bool) bool { return b != nil && *b }

var _ types.Provider = (*typeProvider)(nil)
