package template

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Limits of what a template may yield.
const (
	// MaxEnvValue is the size of one env value, in bytes.
	MaxEnvValue = 64 << 10

	// MaxEnv is the size of all env values of a Pod together, in bytes.
	MaxEnv = 512 << 10

	// MaxFiles is the size of all files of a Pod together, in bytes: what a
	// ConfigMap can hold.
	MaxFiles = 1 << 20
)

// Input is what expressions see.
type Input struct {
	// Source is the content of the source, as JSON read into Go.
	Source map[string]any

	// Claim is the claim: claim.name, namespace, uid, labels, annotations, spec.
	Claim *corev1.PersistentVolumeClaim

	// Volume is the volume to be filled.
	Volume Volume

	// OfferImage is the image of Sluice's own worker where every Secret has to be
	// offered to the kind of its source; empty where none has to.
	OfferImage string
}

// Rendered is a worker, or why there is none.
type Rendered struct {
	// Pod is complete but for its identity and the volumes TargetVolume and,
	// when there are Files, FilesVolume.
	Pod *corev1.Pod

	// Files are the contents of the template's files by name, any bytes at all.
	Files map[string][]byte

	// Objects are what the source names for the Pod to mount. They lie in the
	// source's namespace, so the Pod may be made nowhere else if there are any.
	Objects []NamedObject

	// Reason is TemplateFailed, TemplateInvalid or TemplateTooLarge when there is
	// no Pod, and Message a sentence that names the field and the expression; or
	// InvalidSource where the source names what cannot be an object.
	Reason, Message string
}

// Volume is the volume that an expression sees.
type Volume struct {
	// Name of the volume; empty while it is not known yet.
	Name string
	// Mode is Filesystem or Block; empty is Filesystem.
	Mode corev1.PersistentVolumeMode
	// Capacity of the volume.
	Capacity resource.Quantity
}

// A failure is why a template yields no Pod.
type failure struct{ reason, message string }

func (f *failure) Error() string { return f.message }

// Validate evaluates the validations over a source and returns the message of
// the first that is false. The error names a rule that could not be evaluated.
func (p *Program) Validate(source map[string]any, claim *corev1.PersistentVolumeClaim) (message string, ok bool, err error) {
	claimVar, err := claimVariable(claim)
	if err != nil {
		return "", false, err
	}
	vars := map[string]any{variableSource: source, variableClaim: claimVar}
	b := &budget{left: renderCost}
	for i, r := range p.rules {
		out, err := r.evaluate(vars, b)
		if err != nil {
			return "", false, fmt.Errorf("spec.validations[%d].rule: %w", i, err)
		}
		valid, isBool := out.(types.Bool)
		switch {
		case !isBool:
			return "", false, fmt.Errorf("spec.validations[%d].rule: expression %q: yields %s, want bool", i, shorten(r.source), out.Type().TypeName())
		case !bool(valid):
			return r.message, false, nil
		}
	}
	return "", true, nil
}

// Render makes the worker for one source, claim and volume. Whatever goes wrong
// is in the result's Reason and Message.
func (p *Program) Render(in Input) Rendered {
	r, err := p.render(in)
	if err != nil {
		r := Rendered{Reason: v1alpha1.ReasonTemplateFailed, Message: err.Error()}
		var f *failure
		var invalid *InvalidNameError
		switch {
		case errors.As(err, &f):
			r.Reason = f.reason
		case errors.As(err, &invalid):
			r.Reason = v1alpha1.ReasonInvalidSource
		}
		return r
	}
	return r
}

func (p *Program) render(in Input) (r Rendered, err error) {
	if p.spec.Worker == nil {
		return r, &failure{v1alpha1.ReasonTemplateInvalid, "the Populator has no worker template"}
	}
	claim, err := claimVariable(in.Claim)
	if err != nil {
		return r, err
	}
	mode := in.Volume.Mode
	if mode == "" {
		mode = corev1.PersistentVolumeFilesystem
	}
	vars := map[string]any{
		variableSource: in.Source,
		variableClaim:  claim,
		variableVolume: map[string]any{
			"name":     in.Volume.Name,
			"mode":     string(mode),
			"capacity": in.Volume.Capacity.String(),
		},
	}
	b := &budget{left: renderCost}
	env, err := p.renderEnv(vars, b)
	if err != nil {
		return r, err
	}
	if r.Files, err = p.renderFiles(vars, b); err != nil {
		return r, err
	}
	r.Pod = p.pod(env, mode)
	if r.Objects, err = p.mountSourceVolumes(r.Pod, vars, b); err != nil {
		return r, err
	}
	p.requireOffers(r.Pod, in.OfferImage)
	return r, nil
}

func (p *Program) renderEnv(vars map[string]any, b *budget) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	total := 0
	for i, e := range p.spec.Worker.Env {
		e := *e.DeepCopy()
		value, size, err := p.env[i].env(vars, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.env[i].path, err)
		}
		e.Value = value
		env = append(env, e)
		if total += size; total > MaxEnv {
			return nil, &failure{v1alpha1.ReasonTemplateTooLarge, fmt.Sprintf(
				"%s: the values of env are larger than %d KiB together; use files for large contents", p.env[i].path, MaxEnv>>10)}
		}
	}
	return env, nil
}

func (p *Program) renderFiles(vars map[string]any, b *budget) (map[string][]byte, error) {
	if len(p.files) == 0 {
		return nil, nil
	}
	files := make(map[string][]byte, len(p.files))
	total := 0
	for i, f := range p.spec.Worker.Files {
		content, err := p.files[i].content(vars, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.files[i].path, err)
		}
		if total += len(content); total > MaxFiles {
			return nil, &failure{v1alpha1.ReasonTemplateTooLarge, fmt.Sprintf(
				"%s: the files are larger than %d KiB together", p.files[i].path, MaxFiles>>10)}
		}
		files[f.Name] = content
	}
	return files, nil
}

// env renders t as an env value: what the kubelet's expansion turns into
// literals as they stand and results byte for byte. size is that of the result.
func (t *text) env(vars map[string]any, b *budget) (value string, size int, err error) {
	var out strings.Builder
	for _, part := range t.parts {
		s := part.text
		if part.kind == expression {
			result, err := part.eval.evaluate(vars, b)
			if err != nil {
				return "", 0, err
			}
			if s, err = scalar(result, part.text); err != nil {
				return "", 0, err
			}
			if strings.ContainsRune(s, 0) {
				return "", 0, &failure{v1alpha1.ReasonTemplateInvalid, fmt.Sprintf(
					"expression %q: yields a NUL byte, which no environment variable can hold", shorten(part.text))}
			}
		}
		if size += len(s); size > MaxEnvValue {
			return "", 0, &failure{v1alpha1.ReasonTemplateTooLarge, fmt.Sprintf(
				"larger than %d KiB; use files for large contents", MaxEnvValue>>10)}
		}
		if part.kind != literal {
			s = escapeDollar(s)
		}
		out.WriteString(s)
	}
	return out.String(), size, nil
}

// content renders t as the content of a file.
func (t *text) content(vars map[string]any, b *budget) ([]byte, error) {
	out := []byte{}
	for _, part := range t.parts {
		if part.kind != expression {
			out = append(out, part.text...)
			continue
		}
		result, err := part.eval.evaluate(vars, b)
		if err != nil {
			return nil, err
		}
		if raw, ok := result.(types.Bytes); ok {
			out = append(out, raw...)
		} else {
			s, err := scalar(result, part.text)
			if err != nil {
				return nil, err
			}
			out = append(out, s...)
		}
		if len(out) > MaxFiles {
			return nil, &failure{v1alpha1.ReasonTemplateTooLarge, fmt.Sprintf("larger than %d KiB", MaxFiles>>10)}
		}
	}
	return out, nil
}

// scalar is the text of a result: strings as they are, numbers as JSON writes
// them, true and false.
func scalar(v ref.Val, source string) (string, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Double:
		return number(float64(v)), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	case types.Null:
		return "", &failure{v1alpha1.ReasonTemplateInvalid, fmt.Sprintf("expression %q: yields null (say what is meant when the field has no value)", shorten(source))}
	}
	return "", &failure{v1alpha1.ReasonTemplateInvalid, fmt.Sprintf("expression %q: yields %s, want string, number or bool", shorten(source), v.Type().TypeName())}
}

// number writes whole numbers without exponent or fraction, as people wrote
// them in the source.
func number(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func claimVariable(claim *corev1.PersistentVolumeClaim) (map[string]any, error) {
	if claim == nil {
		claim = &corev1.PersistentVolumeClaim{}
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&claim.Spec)
	if err != nil {
		return nil, fmt.Errorf("convert claim %q: %w", claim.Name, err)
	}
	return map[string]any{
		"name":        claim.Name,
		"namespace":   claim.Namespace,
		"uid":         string(claim.UID),
		"labels":      nonNil(claim.Labels),
		"annotations": nonNil(claim.Annotations),
		"spec":        spec,
	}, nil
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
