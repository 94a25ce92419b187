package template

import (
	"fmt"

	"github.com/google/cel-go/cel"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A Program is a compiled Populator. It is immutable and safe for concurrent
// use; make one per generation of a Populator and schema of its source kind.
type Program struct {
	spec  *v1alpha1.PopulatorSpec
	rules []rule
	// env holds the compiled values of spec.worker.env, nil where an entry has
	// no expression. files those of spec.worker.files.
	env   []*text
	files []*text
	// volumes holds spec.worker.sourceVolumes.
	volumes []sourceVolume
	// given says that somebody else than the Populator's author wrote the worker.
	given bool
}

type rule struct {
	evaluable
	message string
}

// A text is a compiled template text.
type text struct {
	path  *field.Path
	parts []compiledPart
}

type compiledPart struct {
	part
	eval *evaluable // of an expression
}

// Compile compiles a Populator's validations and worker template and refuses
// what may not stand in them, each problem with the path of its field. schema
// is that of the source kind, in the version that sources are read in; nil when
// it is not known, which leaves types to be checked by rendering. Compile
// returns a Program only when there are no errors.
func Compile(spec *v1alpha1.PopulatorSpec, schema *apiextensionsv1.JSONSchemaProps) (*Program, field.ErrorList) {
	path := field.NewPath("spec")
	lang, err := newLanguage(schema)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	p := &Program{spec: spec.DeepCopy()}
	errs := checkShape(p.spec, path)
	errs = append(errs, p.compileRules(lang, path.Child("validations"))...)
	if p.spec.Worker != nil {
		worker := path.Child("worker")
		errs = append(errs, checkWorker(p.spec.Worker, worker)...)
		errs = append(errs, checkSourceVolumes(p.spec.Worker, worker)...)
		errs = append(errs, checkPlaces(p.spec.Worker, worker)...)
		errs = append(errs, p.compileWorker(lang, worker)...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}

func (p *Program) compileRules(lang *language, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range p.spec.Validations {
		e, err := compile(lang.rules, v.Rule, "bool", cel.BoolType)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("rule"), v.Rule, err.Error()))
			continue
		}
		p.rules = append(p.rules, rule{evaluable: *e, message: v.Message})
	}
	return errs
}

func (p *Program) compileWorker(lang *language, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range p.spec.Worker.Env {
		t, problems := compileText(lang, path.Child("env").Index(i).Child("value"), e.Value, envTypes)
		errs = append(errs, problems...)
		if t != nil {
			errs = append(errs, t.checkReferences()...)
		}
		p.env = append(p.env, t)
	}
	for i, f := range p.spec.Worker.Files {
		t, problems := compileText(lang, path.Child("files").Index(i).Child("content"), f.Content, fileTypes)
		errs = append(errs, problems...)
		p.files = append(p.files, t)
	}
	return append(errs, p.compileSourceVolumes(lang, path.Child("sourceVolumes"))...)
}

// A valueTypes is what an expression may yield in one place.
type valueTypes struct {
	words string
	types []*cel.Type
}

var (
	scalars   = []*cel.Type{cel.StringType, cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType}
	envTypes  = valueTypes{"string, number or bool", scalars}
	fileTypes = valueTypes{"string, bytes, number or bool", append([]*cel.Type{cel.BytesType}, scalars...)}
)

func compileText(lang *language, path *field.Path, value string, want valueTypes) (*text, field.ErrorList) {
	parts, err := parse(value)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, shorten(value), err.Error())}
	}
	var errs field.ErrorList
	t := &text{path: path}
	for _, part := range parts {
		c := compiledPart{part: part}
		if part.kind == expression {
			if c.eval, err = compile(lang.templates, part.text, want.words, want.types...); err != nil {
				errs = append(errs, field.Invalid(path, "${"+part.text+"}", err.Error()))
			}
		}
		t.parts = append(t.parts, c)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return t, nil
}

// checkReferences refuses an env value in which the result of an expression
// could complete a $(VAR) reference of the literal text before it, and so name
// a variable of the source's choice.
func (t *text) checkReferences() field.ErrorList {
	var before string
	for _, p := range t.parts {
		switch p.kind {
		case literal:
			before += p.text
		case escape:
			before += escapeDollar(p.text)
		case expression:
			if openReference(before) {
				return field.ErrorList{field.Invalid(t.path, "${"+p.text+"}",
					"stands inside a $(…) reference: a source would choose which variable is read; write $$( for a literal $(")}
			}
		}
	}
	return nil
}

// checkShape repeats the rules of the CRD that rendering relies on.
func checkShape(spec *v1alpha1.PopulatorSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch worker, plugin := spec.Worker != nil, spec.Plugin != nil; {
	case worker && plugin:
		errs = append(errs, field.Forbidden(path.Child("plugin"), "exactly one of worker and plugin must be set, and worker is"))
	case !worker && !plugin:
		errs = append(errs, field.Required(path.Child("worker"), "exactly one of worker and plugin must be set"))
	case plugin:
		errs = append(errs, checkPlugin(spec.Plugin, path.Child("plugin"))...)
	}
	kind := path.Child("sourceKind")
	if spec.SourceKind.Group == "" {
		errs = append(errs, field.Required(kind.Child("group"), "the core group has no source kinds"))
	}
	if spec.SourceKind.Kind == "" {
		errs = append(errs, field.Required(kind.Child("kind"), "name the kind that a claim's dataSourceRef names"))
	}
	return errs
}

// Spec returns a copy of what was compiled.
func (p *Program) Spec() *v1alpha1.PopulatorSpec { return p.spec.DeepCopy() }

// String names the source kind, for logs.
func (p *Program) String() string {
	return fmt.Sprintf("%s.%s", p.spec.SourceKind.Kind, p.spec.SourceKind.Group)
}
