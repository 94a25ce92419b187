package template

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// expressionCost bounds one evaluation: about a tenth of a second, the same
	// bound as that of a rule in a CRD.
	expressionCost = 1_000_000

	// renderCost bounds all expressions of one Validate or Render together.
	renderCost = 10_000_000

	// interruptEvery is how many iterations of a comprehension pass between two
	// looks at the cost.
	interruptEvery = 100
)

// The variables of the language.
const (
	variableSource = "source"
	variableClaim  = "claim"
	variableVolume = "volume"
)

// libraries are those that Kubernetes 1.37 offers to CRD rules, without the
// authorizer, and base64.
var libraries = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(boundedStrings(),
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxRange)),
		ext.Encoders(),
		library.URLs(),
		library.Regex(),
		library.Lists(library.ListsVersion(1)),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
	)...)
})

// A language compiles expressions over one source kind.
type language struct {
	sources   *cel.Env // source
	rules     *cel.Env // source, claim
	templates *cel.Env // source, claim, volume
}

func newLanguage(schema *apiextensionsv1.JSONSchemaProps) (*language, error) {
	base, err := libraries()
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	provider := newTypeProvider(base.CELTypeProvider(), schema)
	sources, err := base.Extend(
		cel.CustomTypeProvider(provider),
		cel.Variable(variableSource, cel.ObjectType(typeSource)),
	)
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	rules, err := sources.Extend(cel.Variable(variableClaim, cel.ObjectType(typeClaim)))
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	templates, err := rules.Extend(cel.Variable(variableVolume, cel.ObjectType(typeVolume)))
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	return &language{sources: sources, rules: rules, templates: templates}, nil
}

// An evaluable is one compiled expression.
type evaluable struct {
	source  string
	program cel.Program
}

// compile checks that source compiles in env and may yield one of the allowed
// types. The error is one line for the author of the template.
func compile(env *cel.Env, source, want string, allowed ...*cel.Type) (*evaluable, error) {
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, fmt.Errorf("does not compile: %s", firstIssues(issues))
	}
	if out := ast.OutputType(); !mayYield(out, allowed) {
		return nil, fmt.Errorf("yields %s, want %s", out, want)
	}
	program, err := env.Program(ast,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CostLimit(expressionCost),
		cel.InterruptCheckFrequency(interruptEvery),
	)
	if err != nil {
		return nil, fmt.Errorf("does not compile: %w", err)
	}
	return &evaluable{source: source, program: program}, nil
}

// mayYield says whether an expression of type out can yield an allowed type; of
// a dynamic one only evaluation can tell.
func mayYield(out *cel.Type, allowed []*cel.Type) bool {
	if out.IsExactType(cel.DynType) {
		return true
	}
	for _, t := range allowed {
		if out.IsExactType(t) {
			return true
		}
	}
	return false
}

// firstIssues is the first three issues in one line, without the picture of the
// source that cel-go draws.
func firstIssues(issues *cel.Issues) string {
	var texts []string
	for i, e := range issues.Errors() {
		if i == 3 {
			texts = append(texts, fmt.Sprintf("and %d more", len(issues.Errors())-i))
			break
		}
		texts = append(texts, fmt.Sprintf("at %d:%d: %s", e.Location.Line(), e.Location.Column()+1, firstLine(e.Message)))
	}
	return strings.Join(texts, "; ")
}

// A budget is the cost left to one Validate or Render.
type budget struct{ left uint64 }

// evaluate runs e. Its error names the expression.
func (e *evaluable) evaluate(vars map[string]any, b *budget) (ref.Val, error) {
	out, details, err := e.program.Eval(vars)
	if cost := details.ActualCost(); cost != nil {
		if *cost > b.left {
			return nil, &evaluationError{expression: e.source, cause: "the expressions of this Populator cost too much together"}
		}
		b.left -= *cost
	}
	switch {
	case err != nil:
		return nil, &evaluationError{expression: e.source, cause: cause(err)}
	case types.IsUnknownOrError(out):
		return nil, &evaluationError{expression: e.source, cause: fmt.Sprint(out)}
	}
	return out, nil
}

// An evaluationError says which expression failed on which source, and why.
type evaluationError struct{ expression, cause string }

func (e *evaluationError) Error() string {
	return fmt.Sprintf("expression %q: %s", shorten(e.expression), e.cause)
}

// cause puts a run-time error of CEL into words that help the author.
func cause(err error) string {
	text := firstLine(err.Error())
	switch {
	case strings.HasPrefix(text, "no such key") || strings.HasPrefix(text, "no such field"):
		return text + " (test an optional field with has() first)"
	case strings.Contains(text, "actual cost limit exceeded"):
		return "costs too much to evaluate"
	}
	return text
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return shorten(s)
}

// shorten keeps messages within what an event can carry, whatever the source.
func shorten(s string) string {
	const limit = 256
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}
