package helm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/internal/mover/source/inline"
	"github.com/sluice-dev/sluice/internal/template"
)

// populators returns those that the chart renders when it is asked to, compiled against the kinds of their sources.
func populators(t *testing.T, values map[string]any) map[string]*template.Program {
	t.Helper()
	manifest, err := chart(values).Template(t.Context(), config.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	var data map[string]string
	for doc := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		var c corev1.ConfigMap
		if strings.Contains(doc, "\n  name: sluice-populators\n") && yaml.Unmarshal([]byte(doc), &c) == nil {
			data = c.Data
		}
	}
	out := map[string]*template.Program{}
	for name, doc := range data {
		var p v1alpha1.Populator
		if err := yaml.UnmarshalStrict([]byte(doc), &p); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, doc)
		}
		raw, err := os.ReadFile(filepath.Join(repository, "charts", "sluice", "files", "crds", "sluice.dev_"+strings.ToLower(p.Spec.SourceKind.Kind)+"s.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		program, errs := template.Compile(&p.Spec, crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if len(errs) > 0 {
			t.Fatalf("Populator %q: %v", p.Name, errs.ToAggregate())
		}
		out[p.Name] = program
	}
	return out
}

// worker renders a program for a source in YAML.
func worker(t *testing.T, p *template.Program, source string) (map[string]string, map[string][]byte) {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(source), &object); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	claim.Name, claim.Namespace = "claim", "default"
	if message, ok, err := p.Validate(object, claim); err != nil || !ok {
		t.Fatalf("the source is refused: %s, %v", message, err)
	}
	r := p.Render(template.Input{Source: object, Claim: claim})
	if r.Reason != "" {
		t.Fatalf("%s: %s", r.Reason, r.Message)
	}
	env := map[string]string{}
	for _, e := range r.Pod.Spec.Containers[0].Env {
		if e.Value != "" && strings.HasPrefix(e.Name, "SOURCE_") {
			env[e.Name] = e.Value
		}
	}
	return env, r.Files
}

func TestPopulatorOfHTTPSource(t *testing.T) {
	p := populators(t, map[string]any{"sources": map[string]any{"http": map[string]any{
		"allowAddresses": []any{"127.0.0.0/8"}, "denyAddresses": []any{"10.0.0.0/8", "fd00::/8"}, "proxy": "http://proxy.example:3128",
	}}})["http"]
	env, files := worker(t, p, `{metadata: {name: s}, spec: {url: "https://example.com/$(HOME)/a?b=${c}"}}`)
	want := map[string]string{
		"SOURCE_URL": "https://example.com/$$(HOME)/a?b=$${c}", "SOURCE_EXTRACT": "false", "SOURCE_STRIP_COMPONENTS": "0", "SOURCE_SKIP_UNSUPPORTED": "false",
		"SOURCE_MAX_REDIRECTS": "0", "SOURCE_CA_FILE": "/sluice/files/ca.crt", "SOURCE_ALLOW_ADDRESS": "127.0.0.0/8",
		"SOURCE_DENY_ADDRESS": "10.0.0.0/8,fd00::/8", "SOURCE_PROXY": "http://proxy.example:3128",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment: -want +got\n%s", diff)
	}
	if string(files["ca.crt"]) != "" {
		t.Errorf("ca.crt = %q, want nothing", files["ca.crt"])
	}
	env, files = worker(t, p, `{metadata: {name: s}, spec: {url: "https://example.com/a", digest: "sha256:00", caBundle: PEM, maxRedirects: -1,
		onMissing: Continue, extract: {format: Tar, subPath: a/b, stripComponents: 2, unsupported: Skip}}}`)
	for name, value := range map[string]string{
		"SOURCE_DIGEST": "sha256:00", "SOURCE_MAX_REDIRECTS": "-1", "SOURCE_ON_MISSING": "Continue", "SOURCE_EXTRACT": "true",
		"SOURCE_FORMAT": "Tar", "SOURCE_SUB_PATH": "a/b", "SOURCE_STRIP_COMPONENTS": "2", "SOURCE_SKIP_UNSUPPORTED": "true",
	} {
		if env[name] != value {
			t.Errorf("%s = %q, want %q", name, env[name], value)
		}
	}
	if string(files["ca.crt"]) != "PEM" {
		t.Errorf("ca.crt = %q, want that of the source", files["ca.crt"])
	}
	source := `{metadata: {name: s}, spec: {url: "https://example.com/a", secretRef: {name: token}, caConfigMapRef: {name: authorities, key: root.pem}}}`
	env, _ = worker(t, p, source)
	if env["SOURCE_CREDENTIALS"] != "/sources/credentials" || env["SOURCE_CA_FILE"] != "/sluice/files/ca.crt,/sources/ca/root.pem" {
		t.Errorf("credentials in %q, authorities in %q", env["SOURCE_CREDENTIALS"], env["SOURCE_CA_FILE"])
	}
	want = map[string]string{"/sources/credentials": "Secret/token", "/sources/ca": "ConfigMap/authorities"}
	if diff := cmp.Diff(want, mounts(t, p, source)); diff != "" {
		t.Errorf("what is mounted: -want +got\n%s", diff)
	}
}

// mounts are the Secrets and ConfigMaps that a worker mounts for a source, by
// directory; those that may be missing with a question mark.
func mounts(t *testing.T, p *template.Program, source string) map[string]string {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(source), &object); err != nil {
		t.Fatal(err)
	}
	r := p.Render(template.Input{Source: object, Claim: &corev1.PersistentVolumeClaim{}})
	if r.Reason != "" {
		t.Fatalf("%s: %s", r.Reason, r.Message)
	}
	named := map[string]string{}
	for _, v := range r.Pod.Spec.Volumes {
		optional := false
		switch {
		case v.Secret != nil:
			named[v.Name], optional = "Secret/"+v.Secret.SecretName, *v.Secret.Optional
		case v.ConfigMap != nil:
			named[v.Name], optional = "ConfigMap/"+v.ConfigMap.Name, *v.ConfigMap.Optional
		}
		if optional {
			named[v.Name] += "?"
		}
	}
	out := map[string]string{}
	for _, m := range r.Pod.Spec.Containers[0].VolumeMounts {
		if what, ok := named[m.Name]; ok {
			out[m.MountPath] = what
		}
	}
	return out
}

func TestPopulatorOfInlineSource(t *testing.T) {
	p := populators(t, nil)["inline"]
	_, files := worker(t, p, `{metadata: {name: s}, spec: {files: [
		{path: "etc/a b", content: "x\ny $(HOME) ${z}\n", mode: "0600"}, {path: bin, binaryContent: "AP8="}, {path: empty}]}}`)
	got, err := inline.ParseManifest(files["manifest"])
	if err != nil {
		t.Fatalf("%v\n%s", err, files["manifest"])
	}
	want := inline.Manifest{Files: []inline.File{
		{Path: "etc/a b", Mode: 0o600, Content: []byte("x\ny $(HOME) ${z}\n")},
		{Path: "bin", Content: []byte{0, 0xff}},
		{Path: "empty", Content: []byte{}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest: -want +got\n%s", diff)
	}
	source := `{metadata: {name: s}, spec: {onMissing: Continue, files: [{path: a, content: a}],
		configMap: {name: settings, path: etc, mode: "0600"},
		secret: {name: token, items: [{key: k1, path: keys/one, mode: "0400"}, {key: k2}]}}}`
	env, files := worker(t, p, source)
	if got, err = inline.ParseManifest(files["manifest"]); err != nil {
		t.Fatalf("%v\n%s", err, files["manifest"])
	}
	want = inline.Manifest{Files: []inline.File{{Path: "a", Content: []byte("a")}}, Trees: []inline.Tree{
		{Name: "configMap", Path: "etc", Mode: 0o600},
		{Name: "secret", Keys: []inline.Key{{Key: "k1", Path: "keys/one", Mode: 0o400}, {Key: "k2"}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest: -want +got\n%s", diff)
	}
	if env["SOURCE_CONFIG_MAP"] != "/sources/configmap" || env["SOURCE_SECRET"] != "/sources/secret" {
		t.Errorf("directories %q and %q", env["SOURCE_CONFIG_MAP"], env["SOURCE_SECRET"])
	}
	mounted := map[string]string{"/sources/configmap": "ConfigMap/settings?", "/sources/secret": "Secret/token?"}
	if diff := cmp.Diff(mounted, mounts(t, p, source)); diff != "" {
		t.Errorf("what is mounted: -want +got\n%s", diff)
	}
	mounted = map[string]string{"/sources/configmap": "ConfigMap/settings"}
	if diff := cmp.Diff(mounted, mounts(t, p, `{metadata: {name: s}, spec: {configMap: {name: settings}}}`)); diff != "" {
		t.Errorf("a ConfigMap that has to be there: -want +got\n%s", diff)
	}
	if _, files := worker(t, p, `{metadata: {name: s}, spec: {}}`); strings.TrimSpace(string(files["manifest"])) != "" {
		t.Errorf("manifest of nothing = %q", files["manifest"])
	}
}

func TestSourcesOff(t *testing.T) {
	off := map[string]any{"enabled": false}
	if got := populators(t, map[string]any{"sources": map[string]any{"http": off, "inline": off}}); len(got) > 0 {
		t.Errorf("%d Populators of sources that are off", len(got))
	}
	for key := range render(t, map[string]any{"sources": map[string]any{"http": off, "inline": off}}) {
		if strings.HasPrefix(key, "ClusterRole/sluice-source-") && key != "ClusterRole/sluice-source-reader" || strings.Contains(key, "/sluice-shipped-") {
			t.Errorf("%s is rendered for a source that is off", key)
		}
	}
	never := map[string]any{"sources": map[string]any{"populators": "Never"}}
	if got := populators(t, never); len(got) > 0 {
		t.Errorf("%d Populators although there shall never be any", len(got))
	}
	objects := render(t, never)
	for _, key := range []string{"ClusterRole/sluice-shipped-http", "ClusterRoleBinding/sluice-shipped-http"} {
		if _, ok := objects[key]; ok {
			t.Errorf("%s is rendered although the manager is to apply no Populator", key)
		}
	}
	if _, ok := objects["ClusterRole/sluice-source-http"]; !ok {
		t.Error("nobody may read HTTPSources for a Populator of the administrator's own")
	}
}
