package observe

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/template"
)

// Programs is Templates by package template, with every Populator compiled
// once per generation. The zero value is ready for use.
type Programs struct {
	// OfferImage is template.Input's.
	OfferImage string

	mu       sync.Mutex
	compiled map[types.UID]compiled
}

type compiled struct {
	generation int64
	program    *template.Program
	// problem is why there is no program.
	problem string
}

var _ Templates = (*Programs)(nil)

// program returns the compiled Populator. One that does not compile was not
// accepted, unless this manager is newer than the one that accepted it.
func (p *Programs) program(populator *v1alpha1.Populator) compiled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.compiled[populator.UID]; ok && c.generation == populator.Generation {
		return c
	}
	c := compiled{generation: populator.Generation}
	program, errs := template.Compile(&populator.Spec, nil)
	if c.program = program; len(errs) > 0 {
		c.problem = errs.ToAggregate().Error()
	}
	if p.compiled == nil {
		p.compiled = map[types.UID]compiled{}
	}
	p.compiled[populator.UID] = c
	return c
}

// Forget drops the program of a Populator that is gone.
func (p *Programs) Forget(populator types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.compiled, populator)
}

// Validate implements Templates.
func (p *Programs) Validate(populator *v1alpha1.Populator, source *unstructured.Unstructured, claim *corev1.PersistentVolumeClaim) (reason, message string) {
	c := p.program(populator)
	if c.program == nil {
		return v1alpha1.ReasonTemplateInvalid, c.problem
	}
	message, valid, err := c.program.Validate(source.Object, claim)
	switch {
	case err != nil:
		return v1alpha1.ReasonTemplateFailed, err.Error()
	case !valid:
		return v1alpha1.ReasonInvalidSource, message
	}
	return "", ""
}

// Names implements Templates.
func (p *Programs) Names(populator *v1alpha1.Populator, source *unstructured.Unstructured) (objects []populate.NamedObject, reason, message string) {
	c := p.program(populator)
	if c.program == nil {
		return nil, v1alpha1.ReasonTemplateInvalid, c.problem
	}
	names, err := c.program.Names(source.Object)
	switch _, invalid := errors.AsType[*template.InvalidNameError](err); {
	case invalid:
		return nil, v1alpha1.ReasonInvalidSource, err.Error()
	case err != nil:
		return nil, v1alpha1.ReasonTemplateFailed, err.Error()
	}
	return named(names), "", ""
}

func named(objects []template.NamedObject) []populate.NamedObject {
	var out []populate.NamedObject
	for _, o := range objects {
		out = append(out, populate.NamedObject{Kind: o.Kind, Name: o.Name})
	}
	return out
}

// Render implements Templates.
func (p *Programs) Render(populator *v1alpha1.Populator, source *unstructured.Unstructured, claim *corev1.PersistentVolumeClaim,
	volume *corev1.PersistentVolume, attempt int32,
) *populate.Rendered {
	c := p.program(populator)
	if c.program == nil {
		return &populate.Rendered{Attempt: attempt, Reason: v1alpha1.ReasonTemplateInvalid, Message: c.problem}
	}
	return rendered(c.program.Render(p.inputOf(source.Object, claim, volume)), attempt)
}

// Given implements Templates.
func (p *Programs) Given(populator *v1alpha1.Populator, w *v1alpha1.WorkerTemplate, claim *corev1.PersistentVolumeClaim,
	volume *corev1.PersistentVolume, attempt int32,
) *populate.Rendered {
	program, errs := template.Given(populator.Spec.SourceKind, w)
	if len(errs) > 0 {
		return &populate.Rendered{Attempt: attempt, Reason: v1alpha1.ReasonTemplateInvalid,
			Message: "The worker that the plugin computed is refused: " + errs.ToAggregate().Error()}
	}
	return rendered(program.Render(p.inputOf(nil, claim, volume)), attempt)
}

func rendered(r template.Rendered, attempt int32) *populate.Rendered {
	return &populate.Rendered{
		Attempt: attempt, Pod: r.Pod, Files: r.Files, Objects: named(r.Objects), Reason: r.Reason, Message: r.Message,
	}
}

// inputOf is what a worker is rendered from.
func (p *Programs) inputOf(source map[string]any, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) template.Input {
	in := template.Input{Source: source, Claim: claim, OfferImage: p.OfferImage}
	if claim.Spec.VolumeMode != nil {
		in.Volume.Mode = *claim.Spec.VolumeMode
	}
	if volume != nil {
		in.Volume.Name = volume.Name
		in.Volume.Capacity = volume.Spec.Capacity[corev1.ResourceStorage]
	}
	return in
}
