package template

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func helloSpec(change ...func(*v1alpha1.PopulatorSpec)) *v1alpha1.PopulatorSpec {
	s := &v1alpha1.PopulatorSpec{
		SourceKind: v1alpha1.SourceKind{Group: "hello.k8s.io", Kind: "Hello"},
		Validations: []v1alpha1.Validation{{
			Rule:    "source.spec.fileName.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",
			Message: "fileName must be a plain file name",
		}},
		Worker: &v1alpha1.WorkerTemplate{
			Image:   "busybox:latest",
			Command: []string{"sh", "-c", `printf "%s\n" "$CONTENTS" > "$SLUICE_TARGET/$NAME"`},
			Env: []corev1.EnvVar{
				{Name: "NAME", Value: "${source.spec.fileName}"},
				{Name: "CONTENTS", Value: "${source.spec.fileContents}"},
			},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// withEnv replaces the template's env by one value, VALUE.
func withEnv(value string) func(*v1alpha1.PopulatorSpec) {
	return func(s *v1alpha1.PopulatorSpec) {
		s.Worker.Env = []corev1.EnvVar{{Name: "VALUE", Value: value}}
	}
}

func withFile(content string) func(*v1alpha1.PopulatorSpec) {
	return func(s *v1alpha1.PopulatorSpec) {
		s.Worker.Files = []v1alpha1.File{{Name: "data", Content: content}}
	}
}

func helloSource(fileName, contents string) map[string]any {
	return map[string]any{
		"apiVersion": "hello.k8s.io/v1alpha1",
		"kind":       "Hello",
		"metadata":   map[string]any{"name": "example-hello", "namespace": "default", "generation": int64(1)},
		"spec":       map[string]any{"fileName": fileName, "fileContents": contents},
	}
}

func helloClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "example-pvc", Namespace: "default", UID: "u-1", Labels: map[string]string{"app": "demo"}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}
}

func mustCompile(t testing.TB, spec *v1alpha1.PopulatorSpec) *Program {
	t.Helper()
	p, errs := Compile(spec, nil)
	if len(errs) > 0 {
		t.Fatalf("Compile: %v", errs.ToAggregate())
	}
	return p
}

func render(t testing.TB, spec *v1alpha1.PopulatorSpec, source map[string]any) Rendered {
	t.Helper()
	return mustCompile(t, spec).Render(Input{
		Source: source,
		Claim:  helloClaim(),
		Volume: Volume{Name: "pvc-1", Mode: corev1.PersistentVolumeFilesystem, Capacity: resource.MustParse("10Mi")},
	})
}

func TestRenderHello(t *testing.T) {
	r := render(t, helloSpec(), helloSource("example.txt", "Hello, world!"))
	if r.Reason != "" {
		t.Fatalf("Render: %s: %s", r.Reason, r.Message)
	}
	want := map[string]string{
		"SLUICE_TARGET":      "/sluice/target",
		"SLUICE_VOLUME_MODE": "Filesystem",
		"NAME":               "example.txt",
		"CONTENTS":           "Hello, world!",
	}
	c := r.Pod.Spec.Containers[0]
	if diff := cmp.Diff(want, kubeletEnv(c.Env)); diff != "" {
		t.Errorf("environment: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.VolumeMount{{Name: "sluice-target", MountPath: "/sluice/target"}}, c.VolumeMounts); diff != "" {
		t.Errorf("mounts: -want, +got:\n%s", diff)
	}
	if len(r.Files) != 0 {
		t.Errorf("Render: %d files, want none", len(r.Files))
	}
}

func TestRenderValues(t *testing.T) {
	spec := map[string]any{
		"text": "a", "int": int64(7), "float": 0.5, "whole": float64(1e6), "yes": true,
		"list": []any{"a", "b"}, "dash-ed": "d", "null": nil, "b64": "AP8=",
	}
	cases := map[string]struct {
		reason string
		value  string
		want   string
	}{
		"String":      {"A string stands as it is.", "${source.spec.text}", "a"},
		"Integer":     {"An integer is decimal.", "${source.spec.int}", "7"},
		"Float":       {"A fraction is as in JSON.", "${source.spec.float}", "0.5"},
		"WholeFloat":  {"A whole number has no exponent.", "${source.spec.whole}", "1000000"},
		"Bool":        {"A bool is a word.", "${source.spec.yes}", "true"},
		"List":        {"A list is joined by the author.", "${source.spec.list.join(',')}", "a,b"},
		"Backticks":   {"A field that is no identifier stands in backticks.", "${source.spec.`dash-ed`}", "d"},
		"Optional":    {"An absent field has a default.", "${source.?spec.nothing.orValue('none')}", "none"},
		"Has":         {"has() tells whether a field is there.", "${has(source.spec.nothing) ? 'y' : 'n'}", "n"},
		"Metadata":    {"The source's metadata is there.", "${source.metadata.namespace}/${source.metadata.name}", "default/s"},
		"Claim":       {"The claim is there.", "${claim.namespace}/${claim.name} ${claim.uid} ${claim.labels['app']} ${claim.spec.accessModes[0]}", "default/example-pvc u-1 demo ReadWriteOnce"},
		"NoLabel":     {"Maps of the claim exist when empty.", "${'x' in claim.annotations}", "false"},
		"Volume":      {"The volume is there, its capacity a quantity.", "${volume.name} ${volume.mode} ${quantity(volume.capacity).asInteger()}", "pvc-1 Filesystem 10485760"},
		"Escape":      {"$${ is a literal ${.", "$${x} ${source.spec.text}", "${x} a"},
		"PodSyntax":   {"A literal $(VAR) is the author's and expands as in any Pod.", "$(SLUICE_TARGET)/${source.spec.text}", "/sluice/target/a"},
		"DoubledVar":  {"$$( is a literal $( as in any Pod.", "$$(SLUICE_TARGET)${source.spec.text}", "$(SLUICE_TARGET)a"},
		"DollarAlone": {"A literal $ before an expression comes from one.", "${'$'}${source.spec.text}", "$a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			source := map[string]any{"metadata": map[string]any{"name": "s", "namespace": "default"}, "spec": spec}
			r := render(t, helloSpec(withEnv(tc.value)), source)
			if r.Reason != "" {
				t.Fatalf("%s\nRender: %s: %s", tc.reason, r.Reason, r.Message)
			}
			if got := kubeletEnv(r.Pod.Spec.Containers[0].Env)["VALUE"]; got != tc.want {
				t.Errorf("%s\n%q is %q in the container, want %q", tc.reason, tc.value, got, tc.want)
			}
		})
	}
}

func TestRenderFails(t *testing.T) {
	big := strings.Repeat("x", MaxEnvValue)
	cases := map[string]struct {
		why    string
		change func(*v1alpha1.PopulatorSpec)
		spec   map[string]any
		reason string
		says   []string
	}{
		"MissingField": {
			why: "The message names the expression and the way out.", change: withEnv("${source.spec.nope}"),
			reason: v1alpha1.ReasonTemplateFailed, says: []string{"spec.worker.env[0].value", `"source.spec.nope"`, "no such key: nope", "has()"},
		},
		"Null":       {why: "null is no text.", change: withEnv("${source.spec.a}"), spec: map[string]any{"a": nil}, reason: v1alpha1.ReasonTemplateInvalid, says: []string{"null"}},
		"List":       {why: "A list is no text.", change: withEnv("${source.spec.a}"), spec: map[string]any{"a": []any{"x"}}, reason: v1alpha1.ReasonTemplateInvalid, says: []string{"list", "want string"}},
		"Map":        {why: "A map is no text.", change: withEnv("${source.spec}"), reason: v1alpha1.ReasonTemplateInvalid, says: []string{"map"}},
		"BytesInEnv": {why: "Bytes may be no text.", change: withEnv("${dyn(b'a')}"), reason: v1alpha1.ReasonTemplateInvalid, says: []string{"bytes"}},
		"NUL":        {why: "An environment variable ends at NUL.", change: withEnv("${source.spec.a}"), spec: map[string]any{"a": "x\x00y"}, reason: v1alpha1.ReasonTemplateInvalid, says: []string{"NUL"}},
		"TooLargeValue": {
			why: "A value has a size limit, literals included.", change: withEnv("x${source.spec.a}"), spec: map[string]any{"a": big},
			reason: v1alpha1.ReasonTemplateTooLarge, says: []string{"spec.worker.env[0].value", "64 KiB", "files"},
		},
		"TooLargePod": {
			why: "So has the environment.",
			change: func(s *v1alpha1.PopulatorSpec) {
				s.Worker.Env = nil
				for _, n := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I"} {
					s.Worker.Env = append(s.Worker.Env, corev1.EnvVar{Name: n, Value: "${source.spec.a}"})
				}
			},
			spec: map[string]any{"a": big}, reason: v1alpha1.ReasonTemplateTooLarge, says: []string{"spec.worker.env[8].value", "512 KiB"},
		},
		"TooLargeFile": {
			why: "And the files.", change: withFile("${source.spec.a}${source.spec.a}"), spec: map[string]any{"a": strings.Repeat("x", MaxFiles/2+1)},
			reason: v1alpha1.ReasonTemplateTooLarge, says: []string{"spec.worker.files[0].content", "1024 KiB"},
		},
		"TooLargeFiles": {
			why: "Together.",
			change: func(s *v1alpha1.PopulatorSpec) {
				s.Worker.Files = []v1alpha1.File{{Name: "a", Content: "${source.spec.a}"}, {Name: "b", Content: "${source.spec.a}"}}
			},
			spec: map[string]any{"a": strings.Repeat("x", MaxFiles/2+1)}, reason: v1alpha1.ReasonTemplateTooLarge, says: []string{"spec.worker.files[1].content", "together"},
		},
		"TooCostly": {
			why: "An expression has a cost limit.", change: withEnv("${source.spec.l.map(x, source.spec.l.map(y, x + y).size()).size()}"),
			spec: map[string]any{"l": manyInts(2000)}, reason: v1alpha1.ReasonTemplateFailed, says: []string{"costs too much"},
		},
		"WrongType": {why: "A wrong type is found.", change: withEnv("${source.spec.a + 1}"), spec: map[string]any{"a": "x"}, reason: v1alpha1.ReasonTemplateFailed, says: []string{"no such overload"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := tc.spec
			if spec == nil {
				spec = map[string]any{}
			}
			r := render(t, helloSpec(withEnv(""), tc.change), map[string]any{"spec": spec})
			if r.Reason != tc.reason || r.Pod != nil {
				t.Fatalf("%s\nRender: %q, pod %t, want %q and none (message %q)", tc.why, r.Reason, r.Pod != nil, tc.reason, r.Message)
			}
			for _, want := range tc.says {
				if !strings.Contains(r.Message, want) {
					t.Errorf("%s\nmessage %q does not say %q", tc.why, r.Message, want)
				}
			}
			if strings.ContainsAny(r.Message, "\n\x00") || utf8.RuneCountInString(r.Message) > 1024 {
				t.Errorf("message of %d characters does not fit an event: %q", utf8.RuneCountInString(r.Message), r.Message)
			}
		})
	}
}

func manyInts(n int) []any {
	l := make([]any, n)
	for i := range l {
		l[i] = int64(i)
	}
	return l
}

func TestRenderCostsTogether(t *testing.T) {
	spec := helloSpec(func(s *v1alpha1.PopulatorSpec) {
		s.Worker.Env = nil
		for i := range 100 {
			s.Worker.Env = append(s.Worker.Env, corev1.EnvVar{Name: "V" + string(rune('A'+i%26)) + string(rune('A'+i/26)),
				Value: "${source.spec.l.map(x, source.spec.l.map(y, y).size()).size()}"})
		}
	})
	r := render(t, spec, map[string]any{"spec": map[string]any{"l": manyInts(120)}})
	if r.Reason != v1alpha1.ReasonTemplateFailed || !strings.Contains(r.Message, "together") {
		t.Errorf("Render: %q %q, want TemplateFailed for the cost of all expressions together", r.Reason, r.Message)
	}
}

func TestRenderFiles(t *testing.T) {
	source := map[string]any{"spec": map[string]any{"b64": "AP8k", "text": "$(TOKEN) ${x} $$\x00", "large": strings.Repeat("y", MaxEnvValue+1)}}
	cases := map[string]struct {
		reason, content, want string
	}{
		"Bytes":   {"Bytes reach the file as they are.", "${base64.decode(source.spec.b64)}", "\x00\xff$"},
		"Text":    {"Nothing expands a file, so nothing is doubled.", "${source.spec.text}", "$(TOKEN) ${x} $$\x00"},
		"Literal": {"Literals stand as they are, but for the escape.", "$(A) $$ $${ ${'x'}", "$(A) $$ ${ x"},
		"Large":   {"What is too large for env goes into a file.", "${source.spec.large}", strings.Repeat("y", MaxEnvValue+1)},
		"Empty":   {"An empty file is a file.", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := render(t, helloSpec(withEnv(""), withFile(tc.content)), source)
			if r.Reason != "" {
				t.Fatalf("%s\nRender: %s: %s", tc.reason, r.Reason, r.Message)
			}
			if diff := cmp.Diff(map[string][]byte{"data": []byte(tc.want)}, r.Files); diff != "" {
				t.Errorf("%s\nfiles: -want, +got:\n%s", tc.reason, diff)
			}
			c := r.Pod.Spec.Containers[0]
			if got := kubeletEnv(c.Env)[v1alpha1.EnvFiles]; got != v1alpha1.FilesPath {
				t.Errorf("%s is %q, want %q", v1alpha1.EnvFiles, got, v1alpha1.FilesPath)
			}
			want := corev1.VolumeMount{Name: v1alpha1.FilesVolume, MountPath: v1alpha1.FilesPath, ReadOnly: true}
			if got := c.VolumeMounts[len(c.VolumeMounts)-1]; !cmp.Equal(want, got) {
				t.Errorf("mount of files: %v, want %v", got, want)
			}
		})
	}
}

// TestSourceTextIsByteEqual holds the promise of the package: whatever stands
// in a source, in whatever template, the container sees it byte for byte.
func TestSourceTextIsByteEqual(t *testing.T) {
	templates := []string{
		"${source.spec.a}", "$${${source.spec.a}", "x$$${source.metadata.name}", "$(S)${source.spec.a}$(S)",
		"$$(${source.spec.a})", "${source.spec.a}${source.spec.b}", "(${source.spec.a})", "${source.spec.a}(S)", "$$$$ ${source.spec.a}$",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"$", "$", "(", ")", "S", "{", "}", "a", "\\", "'", "\n", "é", "$(S)", "${", "\xff"}
	word := func() string {
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	for _, tmpl := range templates {
		spec := helloSpec(func(s *v1alpha1.PopulatorSpec) {
			s.Worker.Env = []corev1.EnvVar{{Name: "S", Value: "secret"}, {Name: "VALUE", Value: tmpl}}
		})
		p := mustCompile(t, spec)
		parts, err := parse(tmpl)
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			a, b := word(), word()
			r := p.Render(Input{Claim: helloClaim(), Source: map[string]any{
				"metadata": map[string]any{"name": "n"}, "spec": map[string]any{"a": a, "b": b},
			}})
			if r.Reason != "" {
				t.Fatalf("Render: %s: %s", r.Reason, r.Message)
			}
			want := expected(parts, map[string]string{"source.spec.a": a, "source.spec.b": b, "source.metadata.name": "n"})
			if got := kubeletEnv(r.Pod.Spec.Containers[0].Env)["VALUE"]; got != want {
				t.Fatalf("template %q with a=%q b=%q: the container sees %q, want %q", tmpl, a, b, got, want)
			}
		}
	}
}

// expected expands the literals of a template on their own and puts the
// source's texts between them as they are.
func expected(parts []part, results map[string]string) string {
	var out strings.Builder
	for _, p := range parts {
		switch p.kind {
		case literal:
			out.WriteString(kubeletExpand(p.text, map[string]string{"S": "secret"}))
		case escape:
			out.WriteString(p.text)
		case expression:
			out.WriteString(results[p.text])
		}
	}
	return out.String()
}

// FuzzSourceText is TestSourceTextIsByteEqual for texts and templates that
// nobody thought of.
func FuzzSourceText(f *testing.F) {
	f.Add("", "$(S)", "")
	f.Add("$(", "S)", ")")
	f.Add("$$", "(S)", "$")
	f.Fuzz(func(t *testing.T, before, text, after string) {
		spec := helloSpec(func(s *v1alpha1.PopulatorSpec) {
			s.Worker.Env = []corev1.EnvVar{{Name: "S", Value: "secret"}, {Name: "VALUE", Value: before + "${source.a}" + after}}
		})
		p, errs := Compile(spec, nil)
		parts, err := parse(before + "${source.a}" + after)
		if len(errs) > 0 || err != nil {
			return
		}
		for _, part := range parts {
			if part.kind == expression && part.text != "source.a" {
				return
			}
		}
		r := p.Render(Input{Source: map[string]any{"a": text}})
		if r.Reason != "" {
			return
		}
		got := kubeletEnv(r.Pod.Spec.Containers[0].Env)["VALUE"]
		if want := expected(parts, map[string]string{"source.a": text}); got != want {
			t.Fatalf("%q %q %q: the container sees %q, want %q", before, text, after, got, want)
		}
	})
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		rule   string
		source map[string]any
		ok     bool
		says   string
		failed string
	}{
		"Good":         {"A valid source passes.", "", helloSource("a.txt", ""), true, "", ""},
		"DotDot":       {"A name that leaves the volume does not.", "", helloSource("..", ""), false, "fileName must be a plain file name", ""},
		"EmptyName":    {"Nor does an empty one.", "", helloSource("", ""), false, "fileName must be a plain file name", ""},
		"Claim":        {"A rule sees the claim.", "claim.namespace == 'default'", helloSource("a", ""), true, "", ""},
		"MissingField": {"A rule that cannot be evaluated is an error.", "source.spec.nope == 1", helloSource("a", ""), false, "", "no such key: nope"},
		"NotBool":      {"So is one that yields no bool.", "source.spec.fileName", helloSource("a", ""), false, "", "want bool"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := helloSpec()
			if tc.rule != "" {
				spec.Validations = []v1alpha1.Validation{{Rule: tc.rule, Message: "no"}}
			}
			message, ok, err := mustCompile(t, spec).Validate(tc.source, helloClaim())
			if ok != tc.ok || message != tc.says {
				t.Errorf("%s\nValidate: %q, %t, want %q, %t", tc.reason, message, ok, tc.says, tc.ok)
			}
			if (err != nil) != (tc.failed != "") || err != nil && !strings.Contains(err.Error(), tc.failed) {
				t.Errorf("%s\nValidate: error %v, want %q", tc.reason, err, tc.failed)
			}
		})
	}
}
