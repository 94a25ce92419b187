package template

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestCompileRefuses(t *testing.T) {
	worker := func(change func(*v1alpha1.WorkerTemplate)) func(*v1alpha1.PopulatorSpec) {
		return func(s *v1alpha1.PopulatorSpec) { change(s.Worker) }
	}
	rule := func(r string) func(*v1alpha1.PopulatorSpec) {
		return func(s *v1alpha1.PopulatorSpec) { s.Validations[0].Rule = r }
	}
	cases := map[string]struct {
		change func(*v1alpha1.PopulatorSpec)
		// want is the path and a part of the message of the only error.
		path, says string
	}{
		"Both":    {func(s *v1alpha1.PopulatorSpec) { s.Plugin = &v1alpha1.Plugin{Socket: "/run/sluice/x"} }, "spec.plugin", "exactly one"},
		"Neither": {func(s *v1alpha1.PopulatorSpec) { s.Worker = nil }, "spec.worker", "exactly one"},
		"NoImage": {worker(func(w *v1alpha1.WorkerTemplate) { w.Image = "" }), "spec.worker.image", "image"},

		"RuleSyntax":      {rule("source.spec.fileName ="), "spec.validations[0].rule", "Syntax error"},
		"RuleNotBool":     {rule("1 + 1"), "spec.validations[0].rule", "yields int, want bool"},
		"RuleSeesVolume":  {rule("volume.name == ''"), "spec.validations[0].rule", "undeclared reference to 'volume'"},
		"RuleClaimField":  {rule("claim.nmae == ''"), "spec.validations[0].rule", "undefined field 'nmae'"},
		"EnvSyntax":       {withEnv("${source.}"), "spec.worker.env[0].value", "Syntax error"},
		"EnvUnclosed":     {withEnv("a ${source"), "spec.worker.env[0].value", "no closing }"},
		"EnvUnknown":      {withEnv("${sauce.spec}"), "spec.worker.env[0].value", "undeclared reference to 'sauce'"},
		"EnvFunction":     {withEnv("${shell('rm')}"), "spec.worker.env[0].value", "undeclared reference to 'shell'"},
		"EnvList":         {withEnv("${[1]}"), "spec.worker.env[0].value", "yields list(int), want string"},
		"EnvBytes":        {withEnv("${b'a'}"), "spec.worker.env[0].value", "yields bytes"},
		"EnvOptional":     {withEnv("${source.?a}"), "spec.worker.env[0].value", "yields optional_type(dyn)"},
		"EnvReference":    {withEnv("$(${source.a})"), "spec.worker.env[0].value", "which variable is read"},
		"EnvReferenceFar": {withEnv("$(A $${ ${source.a}"), "spec.worker.env[0].value", "which variable is read"},
		"FileSyntax":      {withFile("${1 +}"), "spec.worker.files[0].content", "Syntax error"},

		"InImage":   {worker(func(w *v1alpha1.WorkerTemplate) { w.Image = "${source.image}" }), "spec.worker.image", "env values and file contents only"},
		"InCommand": {worker(func(w *v1alpha1.WorkerTemplate) { w.Command = []string{"sh", "-c", "cat ${source.a}"} }), "spec.worker.command[2]", "env"},
		"InArgs":    {worker(func(w *v1alpha1.WorkerTemplate) { w.Args = []string{"$$${source.a}"} }), "spec.worker.args[0]", "env"},
		"InEnvName": {worker(func(w *v1alpha1.WorkerTemplate) { w.Env[0].ValueFrom = secretKey("${a}", "k"); w.Env[0].Value = "" }), "spec.worker.env[0].valueFrom.secretKeyRef.name", "only"},
		"InAccount": {worker(func(w *v1alpha1.WorkerTemplate) { w.ServiceAccountName = "${a}" }), "spec.worker.serviceAccountName", "only"},
		"InSecurity": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{User: "${a}"}}
		}), "spec.worker.securityContext.seLinuxOptions.user", "only"},
		"InVolume": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "${a}"}}}}
		}), "spec.worker.volumes[0].secret.secretName", "only"},
		"InAnnotation": {worker(func(w *v1alpha1.WorkerTemplate) { w.Annotations = map[string]string{"a": "${a}"} }), "spec.worker.annotations.a", "only"},
		"InPullSecret": {worker(func(w *v1alpha1.WorkerTemplate) { w.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "${a}"}} }), "spec.worker.imagePullSecrets[0].name", "only"},
		"InPriority":   {worker(func(w *v1alpha1.WorkerTemplate) { w.PriorityClassName = "${a}" }), "spec.worker.priorityClassName", "only"},

		"HostPath": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}), "spec.worker.volumes[0].hostPath", "may have volumes of type"},
		"OtherClaim": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}), "spec.worker.volumes[0].persistentVolumeClaim", "may have volumes of type"},
		"OurVolume": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "sluice-target", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), "spec.worker.volumes[0].name", "belong to Sluice"},
		"NoSuchVolume": {worker(func(w *v1alpha1.WorkerTemplate) { w.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/x"}} }), "spec.worker.volumeMounts[0].name", "Not found"},
		"MountOverTarget": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			w.VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/x/../sluice/target/y"}}
		}), "spec.worker.volumeMounts[0].mountPath", "/sluice"},
		"MountOverRoot": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			w.VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/"}}
		}), "spec.worker.volumeMounts[0].mountPath", "/sluice"},
		"Privileged": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}), "spec.worker.securityContext.privileged", "never privileged"},
		"RootAndNonRoot": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](0)}
		}), "spec.worker.securityContext.runAsUser", "contradicts"},
		"OurEnv":       {worker(func(w *v1alpha1.WorkerTemplate) { w.Env[0].Name = "SLUICE_TARGET" }), "spec.worker.env[0].name", "set by Sluice"},
		"DuplicateEnv": {worker(func(w *v1alpha1.WorkerTemplate) { w.Env[1].Name = "NAME" }), "spec.worker.env[1].name", "Duplicate"},
		"ValueTwice":   {worker(func(w *v1alpha1.WorkerTemplate) { w.Env[0].ValueFrom = secretKey("a", "k") }), "spec.worker.env[0].valueFrom", "beside value"},
		"OurLabel":     {worker(func(w *v1alpha1.WorkerTemplate) { w.Labels = map[string]string{"sluice.dev/claim-uid": "x"} }), "spec.worker.labels[sluice.dev/claim-uid]", "set by Sluice"},
		"BadLabel":     {worker(func(w *v1alpha1.WorkerTemplate) { w.Labels = map[string]string{"a": "not a label"} }), "spec.worker.labels", "a valid label"},
		"BadFileName":  {worker(func(w *v1alpha1.WorkerTemplate) { w.Files = []v1alpha1.File{{Name: "a b"}} }), "spec.worker.files[0].name", "must"},
		"RequestOverLimit": {worker(func(w *v1alpha1.WorkerTemplate) {
			w.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
			w.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}), "spec.worker.resources.requests[memory]", "must not exceed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := Compile(helloSpec(tc.change), nil)
			if p != nil || len(errs) != 1 {
				t.Fatalf("Compile: program %t, errors %v, want one error at %s", p != nil, errs, tc.path)
			}
			if errs[0].Field != tc.path || !strings.Contains(errs[0].Error(), tc.says) {
				t.Errorf("Compile: %q at %q, want one that says %q at %q", errs[0].Error(), errs[0].Field, tc.says, tc.path)
			}
		})
	}
}

func secretKey(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
}

func TestCompileFindsAllErrors(t *testing.T) {
	_, errs := Compile(helloSpec(withEnv("${a} ${b}"), withFile("${"), func(s *v1alpha1.PopulatorSpec) { s.Worker.Image = "" }), nil)
	var got []string
	for _, e := range errs {
		got = append(got, e.Field)
	}
	want := []string{"spec.worker.image", "spec.worker.env[0].value", "spec.worker.env[0].value", "spec.worker.files[0].content"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths of errors: -want, +got:\n%s", diff)
	}
}

func TestCompileAccepts(t *testing.T) {
	cases := map[string]func(*v1alpha1.PopulatorSpec){
		"Hello":       func(*v1alpha1.PopulatorSpec) {},
		"ShellBraces": func(s *v1alpha1.PopulatorSpec) { s.Worker.Command[2] = "echo $${NAME:-x} $(SLUICE_TARGET)" },
		"SecretFromEnv": func(s *v1alpha1.PopulatorSpec) {
			s.Worker.Env[0] = corev1.EnvVar{Name: "T", ValueFrom: secretKey("a", "k")}
		},
		"SecretMount": func(s *v1alpha1.PopulatorSpec) {
			s.Worker.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}}}}
			s.Worker.VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/sluice-secrets"}}
		},
		"Plugin": func(s *v1alpha1.PopulatorSpec) {
			s.Worker, s.Plugin = nil, &v1alpha1.Plugin{Socket: "/run/sluice/x"}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			if _, errs := Compile(helloSpec(change), nil); len(errs) > 0 {
				t.Errorf("Compile: %v, want no error", errs)
			}
		})
	}
}

const typedSchema = `{"type": "object", "properties": {
	"spec": {"type": "object", "properties": {
		"text": {"type": "string"}, "when": {"type": "string", "format": "date-time"},
		"count": {"type": "integer"}, "ratio": {"type": "number"}, "yes": {"type": "boolean"},
		"port": {"x-kubernetes-int-or-string": true}, "maybe": {"type": "string", "nullable": true},
		"namespace": {"type": "string"}, "file-name": {"type": "string"},
		"tags": {"type": "object", "additionalProperties": {"type": "string"}},
		"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"items": {"type": "array", "items": {"type": "object", "properties": {"path": {"type": "string"}}}}}},
	"status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}`

func TestCompileWithSchema(t *testing.T) {
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal([]byte(typedSchema), schema); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, value string
		refused       string // empty: accepted
	}{
		"Text":          {"A string field is a string.", "${source.spec.text.lowerAscii()}", ""},
		"UnknownField":  {"A field that the schema does not have is found.", "${source.spec.txet}", "undefined field 'txet'"},
		"UnknownRoot":   {"At the top as well.", "${source.data}", "undefined field 'data'"},
		"UnknownInItem": {"And inside lists.", "${source.spec.items[0].name}", "undefined field 'name'"},
		"HasUnknown":    {"has() of it is a mistake too.", "${has(source.spec.txet)}", "undefined field 'txet'"},
		"WrongType":     {"A type that does not fit is found.", "${source.spec.count + 'x'}", "no matching overload"},
		"ListOut":       {"So is a result that is no text.", "${source.spec.items}", "yields list"},
		"ObjectOut":     {"Whole objects are none.", "${source.spec}", "want string"},
		"Item":          {"Items have their type.", "${source.spec.items.map(i, i.path).join(':')}", ""},
		"DateIsString":  {"JSON has no times.", "${source.spec.when + '!'}", ""},
		"Ratio":         {"A JSON number may be whole: it fits anything numeric.", "${source.spec.ratio * 2.0}", ""},
		"IntOrString":   {"An int-or-string is either.", "${source.spec.port}", ""},
		"Nullable":      {"A nullable field may be compared with null.", "${source.spec.maybe == null ? '' : source.spec.maybe}", ""},
		"Tags":          {"Maps are maps.", "${source.spec.tags['a']}", ""},
		"Free":          {"Below preserved unknown fields anything may be.", "${source.spec.free.x.y}", ""},
		"Reserved":      {"Names that CEL reserves are fields as well.", "${source.spec.namespace}", ""},
		"Dash":          {"And names with dashes.", "${source.spec.`file-name`}", ""},
		"Metadata":      {"Every object has metadata.", "${source.metadata.labels['a'] + source.metadata.name + string(source.metadata.generation)}", ""},
		"MetadataWrong": {"With its types.", "${source.metadata.name + 1}", "no matching overload"},
		"Kind":          {"And a kind.", "${source.kind + source.apiVersion}", ""},
		"Status":        {"And the status of its schema.", "${source.status.ready}", ""},
		"Optional":      {"Optional fields keep their type.", "${source.?spec.?text.orValue('x')}", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := Compile(helloSpec(withEnv(tc.value), func(s *v1alpha1.PopulatorSpec) { s.Validations = nil }), schema)
			if tc.refused != "" {
				if p != nil || len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.refused) {
					t.Errorf("%s\nCompile: %v, want an error that says %q", tc.reason, errs, tc.refused)
				}
				return
			}
			if len(errs) > 0 {
				t.Fatalf("%s\nCompile: %v, want no error", tc.reason, errs)
			}
			r := p.Render(Input{Claim: helloClaim(), Source: typedSource()})
			if r.Reason != "" {
				t.Errorf("%s\nRender: %s: %s", tc.reason, r.Reason, r.Message)
			}
		})
	}
}

func typedSource() map[string]any {
	return map[string]any{
		"apiVersion": "a/v1", "kind": "K",
		"metadata": map[string]any{"name": "n", "generation": int64(1), "labels": map[string]any{"a": "b"}},
		"spec": map[string]any{
			"text": "T", "when": "2026-01-01T00:00:00Z", "count": int64(1), "ratio": float64(2), "yes": true, "port": "http",
			"maybe": nil, "namespace": "ns", "file-name": "f", "tags": map[string]any{"a": "b"},
			"free":  map[string]any{"x": map[string]any{"y": "z"}},
			"items": []any{map[string]any{"path": "p"}, map[string]any{"path": "q"}},
		},
		"status": map[string]any{"ready": true},
	}
}

// FuzzCompile holds that no template makes Compile panic.
func FuzzCompile(f *testing.F) {
	f.Add("true", "${source.a}", "sh")
	f.Add("source.spec.x == 1", "$${}${'a'}", "$$${")
	f.Fuzz(func(t *testing.T, rule, value, word string) {
		spec := helloSpec(withEnv(value), withFile(value), func(s *v1alpha1.PopulatorSpec) {
			s.Validations[0].Rule = rule
			s.Worker.Args = []string{word}
		})
		p, errs := Compile(spec, nil)
		if (p == nil) != (len(errs) > 0) {
			t.Fatalf("Compile: program %t with errors %v", p != nil, errs)
		}
		if p != nil {
			p.Render(Input{Source: map[string]any{"a": "b"}})
			_, _, _ = p.Validate(map[string]any{"a": "b"}, nil)
		}
	})
}
