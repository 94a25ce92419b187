package template

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Given compiles a worker for sources of a kind whose values are given as they
// are to be: none of them holds an expression, and the container sees each byte
// for byte, with no $(NAME) expanded. It is held to the rules of templates; paths
// begin with worker.
func Given(kind v1alpha1.SourceKind, w *v1alpha1.WorkerTemplate) (*Program, field.ErrorList) {
	path := field.NewPath("worker")
	if len(w.SourceVolumes) > 0 {
		return nil, field.ErrorList{field.Forbidden(path.Child("sourceVolumes"),
			"expressions are for templates; put what the Pod is to mount into volumes")}
	}
	w = w.DeepCopy()
	for i := range w.Env {
		w.Env[i].Value = escapeDollar(w.Env[i].Value)
	}
	for _, words := range [][]string{w.Command, w.Args} {
		for i := range words {
			words[i] = escapeDollar(words[i])
		}
	}
	for i := range w.Files {
		w.Files[i].Content = strings.ReplaceAll(w.Files[i].Content, "${", "$${")
	}
	lang, err := newLanguage(nil)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	p := &Program{spec: &v1alpha1.PopulatorSpec{SourceKind: kind, Worker: w}, given: true}
	errs := checkWorker(w, path)
	errs = append(errs, checkPlaces(w, path)...)
	errs = append(errs, p.compileWorker(lang, path)...)
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}
