package template

import (
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Names that workers' templates may not take for themselves.
const (
	reservedEnvPrefix    = "SLUICE_"
	reservedVolumePrefix = "sluice-"
	reservedPath         = "/sluice"
	reservedKeyDomain    = "sluice.dev"
)

// checkPlaces refuses ${ wherever it may not stand: in every string of the
// template but env values and file contents.
func checkPlaces(w *v1alpha1.WorkerTemplate, path *field.Path) field.ErrorList {
	w = w.DeepCopy()
	for i := range w.Env {
		w.Env[i].Value = ""
	}
	for i := range w.Files {
		w.Files[i].Content = ""
	}
	for i := range w.SourceVolumes {
		// CEL, in which ${ is no expression: it does not compile.
		w.SourceVolumes[i].Secret, w.SourceVolumes[i].ConfigMap, w.SourceVolumes[i].OptionalWhen = "", "", ""
	}
	raw, err := json.Marshal(w)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for _, name := range []string{"command", "args"} {
		errs = append(errs, checkCommand(tree[name], path.Child(name))...)
		delete(tree, name)
	}
	return append(errs, checkTree(tree, path)...)
}

func checkTree(node any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch node := node.(type) {
	case map[string]any:
		keys := make([]string, 0, len(node))
		for key := range node {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			// A key with ${ is a map key of a label or annotation.
			if strings.Contains(key, "${") {
				errs = append(errs, misplaced(path.Key(key)))
			}
			errs = append(errs, checkTree(node[key], path.Child(key))...)
		}
	case []any:
		for i, item := range node {
			errs = append(errs, checkTree(item, path.Index(i))...)
		}
	case string:
		if strings.Contains(node, "${") {
			errs = append(errs, misplaced(path))
		}
	}
	return errs
}

// checkCommand refuses ${ in a command line. $${ may stand there: the kubelet
// makes ${ of it, for shells.
func checkCommand(node any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	words, _ := node.([]any)
	for i, word := range words {
		word, _ := word.(string)
		if strings.Contains(strings.ReplaceAll(word, "$$", ""), "${") {
			errs = append(errs, field.Forbidden(path.Index(i),
				"${ may not stand in a command line; pass the value in env and use \"$NAME\"; a shell's own ${ is written $${"))
		}
	}
	return errs
}

func misplaced(path *field.Path) *field.Error {
	return field.Forbidden(path, "${ may stand in env values and file contents only")
}

// checkWorker refuses what a worker may not have.
func checkWorker(w *v1alpha1.WorkerTemplate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case w.Image == "":
		errs = append(errs, field.Required(path.Child("image"), "name the container image of the worker"))
	case strings.TrimSpace(w.Image) != w.Image:
		errs = append(errs, field.Invalid(path.Child("image"), w.Image, "must not begin or end with white space"))
	}
	errs = append(errs, checkKeys(w, path)...)
	errs = append(errs, checkEnv(w.Env, path.Child("env"))...)
	errs = append(errs, checkFiles(w.Files, path.Child("files"))...)
	errs = append(errs, checkVolumes(w, path)...)
	errs = append(errs, checkResources(w.Resources, path.Child("resources"))...)
	errs = append(errs, checkSecurityContext(w.SecurityContext, path.Child("securityContext"))...)
	return errs
}

func checkKeys(w *v1alpha1.WorkerTemplate, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(w.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(w.Annotations, path.Child("annotations"))...)
	errs = append(errs, metav1validation.ValidateLabels(w.NodeSelector, path.Child("nodeSelector"))...)
	for _, m := range []struct {
		name string
		keys map[string]string
	}{{"labels", w.Labels}, {"annotations", w.Annotations}} {
		for _, key := range sets.List(sets.KeySet(m.keys)) {
			domain, _, ok := strings.Cut(key, "/")
			if ok && (domain == reservedKeyDomain || strings.HasSuffix(domain, "."+reservedKeyDomain)) {
				errs = append(errs, field.Forbidden(path.Child(m.name).Key(key), "keys of "+reservedKeyDomain+" are set by Sluice"))
			}
		}
	}
	return errs
}

func checkEnv(env []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, e := range env {
		name := path.Index(i).Child("name")
		switch {
		case seen.Has(e.Name):
			errs = append(errs, field.Duplicate(name, e.Name))
		case strings.HasPrefix(e.Name, reservedEnvPrefix):
			errs = append(errs, field.Forbidden(name, "names that begin with "+reservedEnvPrefix+" are set by Sluice"))
		}
		seen.Insert(e.Name)
		for _, problem := range validation.IsRelaxedEnvVarName(e.Name) {
			errs = append(errs, field.Invalid(name, e.Name, problem))
		}
		if e.ValueFrom != nil && e.Value != "" {
			errs = append(errs, field.Forbidden(path.Index(i).Child("valueFrom"), "may not be set beside value"))
		}
	}
	return errs
}

func checkFiles(files []v1alpha1.File, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, f := range files {
		name := path.Index(i).Child("name")
		if seen.Has(f.Name) {
			errs = append(errs, field.Duplicate(name, f.Name))
		}
		seen.Insert(f.Name)
		for _, problem := range validation.IsConfigMapKey(f.Name) {
			errs = append(errs, field.Invalid(name, f.Name, problem))
		}
	}
	return errs
}

func checkVolumes(w *v1alpha1.WorkerTemplate, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, v := range w.Volumes {
		at := root.Child("volumes").Index(i)
		switch {
		case names.Has(v.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		case strings.HasPrefix(v.Name, reservedVolumePrefix):
			errs = append(errs, field.Forbidden(at.Child("name"), "names that begin with "+reservedVolumePrefix+" belong to Sluice"))
		}
		names.Insert(v.Name)
		errs = append(errs, checkVolumeSource(v.VolumeSource, at)...)
	}
	for i, m := range w.VolumeMounts {
		at := root.Child("volumeMounts").Index(i)
		if !names.Has(m.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if clean := path.Clean(m.MountPath); within(clean, reservedPath) || within(reservedPath, clean) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must not hold or lie in "+reservedPath+", where Sluice mounts the volume"))
		}
	}
	return errs
}

// checkVolumeSource admits the volume types of the restricted Pod Security
// profile that hold no storage of their own.
func checkVolumeSource(s corev1.VolumeSource, path *field.Path) field.ErrorList {
	raw, err := json.Marshal(s)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var set map[string]json.RawMessage
	if err := json.Unmarshal(raw, &set); err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	allowed := sets.New("secret", "configMap", "projected", "emptyDir", "downwardAPI")
	var errs field.ErrorList
	for _, kind := range sets.List(sets.KeySet(set)) {
		if !allowed.Has(kind) {
			errs = append(errs, field.Forbidden(path.Child(kind), fmt.Sprintf("a worker may have volumes of type %s only", strings.Join(sets.List(allowed), ", "))))
		}
	}
	return errs
}

// within says whether path p is dir or lies in it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func checkResources(r corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range sets.List(sets.KeySet(list.values)) {
			if q := list.values[name]; q.Sign() < 0 {
				errs = append(errs, field.Invalid(path.Child(list.name).Key(string(name)), q.String(), "must not be negative"))
			}
		}
	}
	for _, name := range sets.List(sets.KeySet(r.Requests)) {
		request, limit := r.Requests[name], r.Limits[name]
		if _, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(), "must not exceed the limit "+limit.String()))
		}
	}
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "a worker has no resource claims"))
	}
	return errs
}

func checkSecurityContext(s *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Privileged != nil && *s.Privileged {
		errs = append(errs, field.Forbidden(path.Child("privileged"), "a worker is never privileged"))
	}
	if s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount {
		errs = append(errs, field.Forbidden(path.Child("procMount"), "a worker has the default /proc"))
	}
	if s.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("windowsOptions"), "workers run on Linux"))
	}
	if s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser == 0 {
		errs = append(errs, field.Invalid(path.Child("runAsUser"), 0, "contradicts runAsNonRoot"))
	}
	return errs
}
