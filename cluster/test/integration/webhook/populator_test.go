package webhook

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/registration"
)

func TestWrongPopulatorIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.Populator)
		says   []string
	}{
		"Syntax": {
			"An expression that does not compile is named with its path.",
			func(p *v1alpha1.Populator) { p.Spec.Worker.Env[0].Value = "${source.spec.}" }, []string{"spec.worker.env[0].value", "Syntax error"},
		},
		"UnknownField": {
			"The schema of the source kind is known, so a misspelt field is found.",
			func(p *v1alpha1.Populator) { p.Spec.Worker.Env[0].Value = "${source.spec.filename}" }, []string{"spec.worker.env[0].value", "undefined field 'filename'"},
		},
		"WrongType": {
			"And a wrong type.",
			func(p *v1alpha1.Populator) { p.Spec.Worker.Env[0].Value = "${source.spec}" }, []string{"spec.worker.env[0].value", "want string"},
		},
		"RuleType": {
			"A validation says yes or no.",
			func(p *v1alpha1.Populator) {
				p.Spec.Validations = []v1alpha1.Validation{{Rule: "source.spec.fileName", Message: "no"}}
			},
			[]string{"spec.validations[0].rule", "want bool"},
		},
		"Image": {
			"Expressions stand in env values and file contents only.",
			func(p *v1alpha1.Populator) { p.Spec.Worker.Image = "${source.spec.fileName}" }, []string{"spec.worker.image", "env values and file contents only"},
		},
		"Command": {
			"Above all not in a command line.",
			func(p *v1alpha1.Populator) {
				p.Spec.Worker.Command = []string{"sh", "-c", "echo ${source.spec.fileName}"}
			}, []string{"spec.worker.command[2]"},
		},
		"HostPath": {
			"A worker sees nothing of its node.",
			func(p *v1alpha1.Populator) {
				p.Spec.Worker.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			},
			[]string{"spec.worker.volumes[0].hostPath"},
		},
		"Both": {
			"Worker and plugin exclude each other.",
			func(p *v1alpha1.Populator) { p.Spec.Plugin = &v1alpha1.Plugin{Socket: "/run/sluice/x"} }, []string{"spec", "exactly one of worker and plugin"},
		},
		"PluginSocket": {
			"A plugin beside the manager listens in the folder that they share.",
			func(p *v1alpha1.Populator) { p.Spec.Worker, p.Spec.Plugin = nil, &v1alpha1.Plugin{Socket: "/tmp/x"} }, []string{"spec.plugin.socket"},
		},
		"PluginAuthority": {
			"One behind a Service is known by the authority of its certificate.",
			func(p *v1alpha1.Populator) {
				p.Spec.Worker, p.Spec.Plugin = nil, &v1alpha1.Plugin{Service: &v1alpha1.PluginService{Namespace: "vendor", Name: "plugin", CABundle: []byte("not PEM")}}
			},
			[]string{"spec.plugin.service.caBundle", "as PEM"},
		},
		"NoImage": {
			"A worker has an image.",
			func(p *v1alpha1.Populator) { p.Spec.Worker.Image = "" }, []string{"spec.worker.image"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := helloPopulator("wrong", "hello.k8s.io", tc.change)
			err := kube.Create(t.Context(), p)
			if err == nil {
				remove(t, p)
			}
			if !apierrors.IsInvalid(err) {
				t.Fatalf("%s\ncreate: %v, want it refused as invalid", tc.reason, err)
			}
			for _, want := range tc.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s\nrefusal %q does not say %q", tc.reason, err, want)
				}
			}
		})
	}
}

func TestRefusalNamesFieldsForPrograms(t *testing.T) {
	p := helloPopulator("wrong", "hello.k8s.io", func(p *v1alpha1.Populator) { p.Spec.Worker.Env[0].Value = "${nothing}" })
	var status apierrors.APIStatus
	if err := kube.Create(t.Context(), p); !errors.As(err, &status) {
		t.Fatalf("create: %v, want a status", err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) != 1 || details.Causes[0].Field != "spec.worker.env[0].value" {
		t.Errorf("details %+v, want one cause at spec.worker.env[0].value", details)
	}
}

func TestUnknownFieldIsRefused(t *testing.T) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(helloPopulator("wrong", "hello.k8s.io"))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Populator"))
	if err := unstructured.SetNestedField(o.Object, "x", "spec", "worker", "imgae"); err != nil {
		t.Fatal(err)
	}
	err = kube.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil {
		remove(t, o)
	}
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.worker.imgae"`) {
		t.Errorf("create: %v, want it refused for the unknown field spec.worker.imgae", err)
	}
}

func TestUpdateIsJudgedToo(t *testing.T) {
	p := helloPopulator("updated", "hello.k8s.io")
	create(t, kube, p)
	await(t, 10*time.Second, "the update is refused", func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return false, err
		}
		p.Spec.Worker.Env[0].Value = "${"
		err := kube.Update(ctx, p)
		switch {
		case apierrors.IsConflict(err):
			return false, nil
		case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.worker.env[0].value"):
			return true, nil
		}
		t.Fatalf("update: %v, want it refused at spec.worker.env[0].value", err)
		return false, nil
	})
}

func TestUnknownKindIsWarnedAndHeals(t *testing.T) {
	const group = "late.example"
	c, w := warned(t)
	p := helloPopulator("late", group)
	create(t, c, p)
	if len(w.texts) != 1 || !strings.Contains(w.texts[0], "Hello."+group) {
		t.Errorf("warnings %q, want one that names Hello.%s", w.texts, group)
	}
	if message := awaitAccepted(t, "late", v1alpha1.ReasonSourceKindNotReadable); !strings.Contains(message, "CustomResourceDefinition") {
		t.Errorf("message %q does not say what to install", message)
	}

	create(t, kube, definitionOf(group))
	message := awaitAcceptedMessage(t, "late", v1alpha1.ReasonSourceKindNotReadable, "ClusterRole")
	for _, want := range []string{v1alpha1.LabelSourceReader, "apiGroups: [" + group + "]", "resources: [hellos]"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}

	create(t, kube, readerOf(group))
	awaitAccepted(t, "late", v1alpha1.ReasonAccepted)
	awaitRegistered(t, p, true)
}

func TestTutorialPopulator(t *testing.T) {
	if err := createFile(t.Context(), filepath.Join(repository, "examples/hello/hello-populator.yaml")); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.Populator{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
	remove(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sluice-source-hello"}})
	remove(t, p)
	awaitAccepted(t, "hello", v1alpha1.ReasonAccepted)
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	awaitRegistered(t, p, true)

	younger := helloPopulator("younger", "hello.k8s.io")
	create(t, kube, younger)
	if message := awaitAccepted(t, "younger", v1alpha1.ReasonConflictingPopulator); !strings.Contains(message, `"hello"`) {
		t.Errorf("message %q does not name the older one", message)
	}
	awaitRegistered(t, younger, false)

	// With the Populator goes its registration, and the younger takes over.
	if err := kube.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	awaitRegistered(t, p, false)
	awaitAccepted(t, "younger", v1alpha1.ReasonAccepted)
}

func TestForeignRegistration(t *testing.T) {
	const group = "foreign.example"
	create(t, kube, definitionOf(group))
	create(t, kube, readerOf(group))
	foreign := &v1beta1.VolumePopulator{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, SourceKind: metav1.GroupKind{Group: group, Kind: "Hello"}}
	create(t, kube, foreign)
	create(t, kube, helloPopulator("mine", group))
	awaitAccepted(t, "mine", v1alpha1.ReasonConflictingPopulator)
	if err := kube.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	awaitAccepted(t, "mine", v1alpha1.ReasonAccepted)
}

// awaitAcceptedMessage waits for a message as well.
func awaitAcceptedMessage(t *testing.T, name, reason, says string) string {
	t.Helper()
	var message string
	await(t, 40*time.Second, "Populator "+name+" says "+says, func(context.Context) (bool, error) {
		message = awaitAccepted(t, name, reason)
		return strings.Contains(message, says), nil
	})
	return message
}

// awaitRegistered waits until a Populator has a VolumePopulator, or none.
func awaitRegistered(t *testing.T, p *v1alpha1.Populator, want bool) {
	t.Helper()
	await(t, 20*time.Second, "the registration of Populator "+p.Name+" is right", func(ctx context.Context) (bool, error) {
		var list v1beta1.VolumePopulatorList
		if err := kube.List(ctx, &list); err != nil {
			return false, err
		}
		found := false
		for i := range list.Items {
			v := &list.Items[i]
			found = found || metav1.IsControlledBy(v, p) && registration.Ours(v) && v.SourceKind == metav1.GroupKind(registration.KindOf(p))
		}
		return found == want, nil
	})
}

// definitionOf defines a kind Hello in a group of its own.
func definitionOf(group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "hellos." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "hellos", Singular: "hello", Kind: "Hello", ListKind: "HelloList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type:       "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"fileName": {Type: "string"}},
					}},
				}},
			}},
		},
	}
}

// readerOf lets the manager read the kind of definitionOf.
func readerOf(group string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-source-" + group, Labels: map[string]string{v1alpha1.LabelSourceReader: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"hellos"}, Verbs: []string{"get", "list", "watch"}}},
	}
}
