package template

import (
	"fmt"
	"path"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// sourceVolumeMode lets the worker's group read, and nobody else.
const sourceVolumeMode int32 = 0o440

// A NamedObject is a Secret or ConfigMap, in the namespace of the source, that
// the source names for its worker.
type NamedObject struct {
	// Kind is Secret or ConfigMap.
	Kind string
	// Name of the object: a DNS subdomain.
	Name string
}

// The kinds of NamedObjects.
const (
	KindSecret    = "Secret"
	KindConfigMap = "ConfigMap"
)

// An InvalidNameError says that a source names what cannot be the name of an
// object.
type InvalidNameError struct {
	Object NamedObject
	// Problem says what is wrong with the name.
	Problem string
}

// Error is a sentence for the author of the source.
func (e *InvalidNameError) Error() string {
	return fmt.Sprintf("it names a %s %q, which can be none: %s", e.Object.Kind, shorten(e.Object.Name), e.Problem)
}

// A sourceVolume is a compiled entry of spec.worker.sourceVolumes.
type sourceVolume struct {
	v1alpha1.SourceVolume
	path     *field.Path
	kind     string
	name     *evaluable
	optional *evaluable // nil where it never is
}

// nameTypes is what the expression of a name may yield.
var nameTypes = valueTypes{"string or optional string", []*cel.Type{
	cel.StringType, cel.OptionalType(cel.StringType), cel.OptionalType(cel.DynType),
}}

func (p *Program) compileSourceVolumes(lang *language, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range p.spec.Worker.SourceVolumes {
		c := sourceVolume{SourceVolume: v, path: path.Index(i), kind: KindSecret}
		key, expr := "secret", v.Secret
		if v.Secret == "" {
			c.kind, key, expr = KindConfigMap, "configMap", v.ConfigMap
		}
		if expr == "" {
			continue // checkSourceVolumes refuses it
		}
		var err error
		if c.name, err = compile(lang.sources, expr, nameTypes.words, nameTypes.types...); err != nil {
			errs = append(errs, field.Invalid(c.path.Child(key), expr, err.Error()))
		}
		if v.OptionalWhen != "" {
			if c.optional, err = compile(lang.sources, v.OptionalWhen, "bool", cel.BoolType); err != nil {
				errs = append(errs, field.Invalid(c.path.Child("optionalWhen"), v.OptionalWhen, err.Error()))
			}
		}
		p.volumes = append(p.volumes, c)
	}
	return errs
}

// checkSourceVolumes refuses entries that collide with each other, with the
// template's own volumes, or with what Sluice mounts.
func checkSourceVolumes(w *v1alpha1.WorkerTemplate, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, places := sets.New[string](), sets.New[string]()
	for _, v := range w.Volumes {
		names.Insert(v.Name)
	}
	for _, m := range w.VolumeMounts {
		places.Insert(path.Clean(m.MountPath))
	}
	for i, v := range w.SourceVolumes {
		at := root.Child("sourceVolumes").Index(i)
		if (v.Secret != "") == (v.ConfigMap != "") {
			errs = append(errs, field.Required(at, "exactly one of secret and configMap must be set"))
		}
		switch {
		case names.Has(v.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		case strings.HasPrefix(v.Name, reservedVolumePrefix):
			errs = append(errs, field.Forbidden(at.Child("name"), "names that begin with "+reservedVolumePrefix+" belong to Sluice"))
		}
		for _, problem := range validation.IsDNS1123Label(v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, problem))
		}
		names.Insert(v.Name)
		clean := path.Clean(v.MountPath)
		switch {
		case !path.IsAbs(v.MountPath) || strings.Contains(v.MountPath, ":"):
			errs = append(errs, field.Invalid(at.Child("mountPath"), v.MountPath, "must be an absolute path without a colon"))
		case within(clean, reservedPath) || within(reservedPath, clean):
			errs = append(errs, field.Invalid(at.Child("mountPath"), v.MountPath, "must not hold or lie in "+reservedPath+", where Sluice mounts the volume"))
		case places.Has(clean):
			errs = append(errs, field.Duplicate(at.Child("mountPath"), v.MountPath))
		}
		places.Insert(clean)
	}
	return errs
}

// Names returns the Secrets and ConfigMaps that a source names for its worker,
// in the order of the template. The error is an *InvalidNameError, or names the
// expression that could not be evaluated.
func (p *Program) Names(source map[string]any) ([]NamedObject, error) {
	b := &budget{left: renderCost}
	var out []NamedObject
	for i := range p.volumes {
		v := &p.volumes[i]
		object, err := v.object(map[string]any{variableSource: source}, b)
		if err != nil {
			return nil, err
		}
		if object.Name != "" {
			out = append(out, object)
		}
	}
	return out, nil
}

// object is what the source names in v; without a name if it names nothing.
func (v *sourceVolume) object(vars map[string]any, b *budget) (NamedObject, error) {
	out, err := v.name.evaluate(vars, b)
	if err != nil {
		return NamedObject{}, fmt.Errorf("%s: %w", v.path, err)
	}
	if o, ok := out.(*types.Optional); ok {
		if !o.HasValue() {
			return NamedObject{}, nil
		}
		out = o.GetValue()
	}
	name, ok := out.(types.String)
	if !ok {
		return NamedObject{}, &failure{v1alpha1.ReasonTemplateFailed, fmt.Sprintf(
			"%s: expression %q: yields %s, want %s", v.path, shorten(v.name.source), typeName(out), nameTypes.words)}
	}
	object := NamedObject{Kind: v.kind, Name: string(name)}
	if object.Name == "" {
		return NamedObject{}, nil
	}
	if problems := validation.IsDNS1123Subdomain(object.Name); len(problems) > 0 {
		return NamedObject{}, &InvalidNameError{Object: object, Problem: problems[0]}
	}
	return object, nil
}

// isOptional says whether the worker starts without the object.
func (v *sourceVolume) isOptional(vars map[string]any, b *budget) (bool, error) {
	if v.optional == nil {
		return false, nil
	}
	out, err := v.optional.evaluate(vars, b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", v.path, err)
	}
	yes, ok := out.(types.Bool)
	if !ok {
		return false, &failure{v1alpha1.ReasonTemplateFailed, fmt.Sprintf(
			"%s: expression %q: yields %s, want bool", v.path, shorten(v.optional.source), typeName(out))}
	}
	return bool(yes), nil
}

func typeName(v ref.Val) string { return v.Type().TypeName() }

// mountSourceVolumes adds to a worker what its source names, and returns that.
func (p *Program) mountSourceVolumes(pod *corev1.Pod, vars map[string]any, b *budget) ([]NamedObject, error) {
	// Sees the source alone, as when it was compiled.
	vars = map[string]any{variableSource: vars[variableSource]}
	var names []NamedObject
	for i := range p.volumes {
		v := &p.volumes[i]
		object, err := v.object(vars, b)
		if err != nil {
			return nil, err
		}
		if object.Name == "" {
			continue
		}
		optional, err := v.isOptional(vars, b)
		if err != nil {
			return nil, err
		}
		volume := corev1.Volume{Name: v.Name}
		switch v.kind {
		case KindSecret:
			volume.Secret = &corev1.SecretVolumeSource{SecretName: object.Name, DefaultMode: ptr.To(sourceVolumeMode), Optional: ptr.To(optional)}
		case KindConfigMap:
			volume.ConfigMap = &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: object.Name}, DefaultMode: ptr.To(sourceVolumeMode), Optional: ptr.To(optional),
			}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		worker := &pod.Spec.Containers[0]
		worker.VolumeMounts = append(worker.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, ReadOnly: true})
		names = append(names, object)
	}
	return names, nil
}
