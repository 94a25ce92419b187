package crds_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// judge checks objects the way the API server does.
type judge struct {
	validator  schemavalidation.SchemaValidator
	structural *structuralschema.Structural
	rules      *schemacel.Validator
}

// newJudge reads a CRD of the chart and checks it as well: its schema is
// structural, and its rules are within their budgets of cost.
func newJudge(t *testing.T, file string) judge {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "charts", "sluice", "files", "crds", file))
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	var crd apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	if errs := validation.ValidateCustomResourceDefinition(t.Context(), &crd); len(errs) > 0 {
		t.Fatalf("%s: %v", file, errs.ToAggregate())
	}
	schema := crd.Spec.Validation
	if schema == nil {
		schema = crd.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return judge{validator, structural, schemacel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// refused says why spec is refused, or nothing.
func (j judge) refused(t *testing.T, spec string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(`{"metadata": {"name": "x"}, "spec": ` + spec + `}`))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	defaulting.Default(object, j.structural)
	errs := schemavalidation.ValidateCustomResource(nil, object, j.validator)
	byRule, _ := j.rules.Validate(t.Context(), nil, j.structural, object, nil, celconfig.RuntimeCELCostBudget)
	if errs = append(errs, byRule...); len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func TestHTTPSource(t *testing.T) {
	j := newJudge(t, "sluice.dev_httpsources.yaml")
	sum := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		spec string
		ok   bool
	}{
		"Plain":        {`{url: "https://example.com/a.bin?x=1"}`, true},
		"All":          {`{url: "http://example.com:8080/a", digest: "sha256:` + sum + `", extract: {subPath: a/b, stripComponents: 1, unsupported: Skip, format: Tar}, secretRef: {name: s}, caBundle: x, maxRedirects: -1, onMissing: Continue}`, true},
		"FileName":     {`{url: "https://example.com", fileName: models/..a/b, fileMode: "0600"}`, true},
		"At":           {`{url: "https://example.com/a@b"}`, true},
		"NoURL":        {`{}`, false},
		"Scheme":       {`{url: "ftp://example.com/a"}`, false},
		"User":         {`{url: "https://u:p@example.com/a"}`, false},
		"NoHost":       {`{url: "https:///a/b/c"}`, false},
		"Digest":       {`{url: "https://example.com", digest: "sha256:00"}`, false},
		"Algorithm":    {`{url: "https://example.com", digest: "md5:` + sum + `"}`, false},
		"Up":           {`{url: "https://example.com", fileName: "a/../b"}`, false},
		"Absolute":     {`{url: "https://example.com", fileName: "/a"}`, false},
		"TwoNames":     {`{url: "https://example.com", fileName: a, extract: {}}`, false},
		"SubPathUp":    {`{url: "https://example.com", extract: {subPath: ".."}}`, false},
		"Mode":         {`{url: "https://example.com", fileMode: "4755"}`, false},
		"NoRedirect":   {`{url: "https://example.com", maxRedirects: 0}`, false},
		"OnMissing":    {`{url: "https://example.com", onMissing: Ignore}`, false},
		"UnknownThing": {`{url: "https://example.com", extract: {format: Rar}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := j.refused(t, tc.spec); (why == "") != tc.ok {
				t.Errorf("%s: refused: %q, want accepted %t", tc.spec, why, tc.ok)
			}
		})
	}
}

func TestInlineSource(t *testing.T) {
	j := newJudge(t, "sluice.dev_inlinesources.yaml")
	for name, tc := range map[string]struct {
		spec string
		ok   bool
	}{
		"Nothing":  {`{}`, true},
		"Files":    {`{files: [{path: a, content: x}, {path: b/c, binaryContent: "aGVsbG8=", mode: "600"}]}`, true},
		"Objects":  {`{configMap: {name: c, path: etc, items: [{key: app.conf, path: x/y, mode: "0400"}]}, secret: {name: s}}`, true},
		"Both":     {`{files: [{path: a, content: x, binaryContent: "aGVsbG8="}]}`, false},
		"Up":       {`{files: [{path: ../a}]}`, false},
		"Dot":      {`{files: [{path: a/./b}]}`, false},
		"Slash":    {`{files: [{path: a//b}]}`, false},
		"Trailing": {`{files: [{path: a/}]}`, false},
		"Mode":     {`{files: [{path: a, mode: "999"}]}`, false},
		"ItemUp":   {`{secret: {name: s, items: [{key: k, path: ../x}]}}`, false},
		"NoName":   {`{configMap: {path: etc}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := j.refused(t, tc.spec); (why == "") != tc.ok {
				t.Errorf("%s: refused: %q, want accepted %t", tc.spec, why, tc.ok)
			}
		})
	}
}
