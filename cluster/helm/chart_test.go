package helm_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// repository is the root of the repository, seen from this package.
var repository = filepath.Join("..", "..")

func chart(values map[string]any) helm.Release {
	r := helm.Sluice(repository, "", "")
	if values != nil {
		r.Values = values
	}
	return r
}

func TestLint(t *testing.T) {
	for _, err := range chart(nil).Lint() {
		t.Error(err)
	}
}

// render returns the chart's objects by kind and name, decoded strictly: a
// field that Kubernetes does not know fails the test.
func render(t *testing.T, values map[string]any) map[string]runtime.Object {
	t.Helper()
	manifest, err := chart(values).Template(t.Context(), config.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	out := map[string]runtime.Object{}
	for doc := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		if strings.Trim(doc, "\n ") == "" {
			continue
		}
		object, kind, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, doc)
		}
		meta, ok := object.(metav1.Object)
		if !ok {
			t.Fatalf("%s has no metadata", kind)
		}
		if _, isDefinition := object.(*apiextensionsv1.CustomResourceDefinition); isDefinition {
			if meta.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s %q would be deleted with its objects", kind.Kind, meta.GetName())
			}
		}
		key := kind.Kind + "/" + meta.GetName()
		if out[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		out[key] = object
	}
	return out
}

// object returns one rendered object with its type.
func object[T runtime.Object](t *testing.T, objects map[string]runtime.Object, key string) T {
	t.Helper()
	o, ok := objects[key].(T)
	if !ok {
		t.Fatalf("%s is not rendered as a %T", key, o)
	}
	return o
}

func TestDefaults(t *testing.T) {
	objects := render(t, nil)
	for _, want := range []string{
		"CustomResourceDefinition/populators.sluice.dev",
		"CustomResourceDefinition/populations.sluice.dev",
		"CustomResourceDefinition/volumepopulators.populator.storage.k8s.io",
		"PodDisruptionBudget/sluice-manager", "Service/sluice-metrics", "Service/sluice-webhooks",
		"ValidatingAdmissionPolicy/sluice-manager-pods", "ValidatingAdmissionPolicyBinding/sluice-manager-pods",
		"ValidatingAdmissionPolicy/sluice-manager-files", "ValidatingAdmissionPolicyBinding/sluice-manager-files",
		"ValidatingAdmissionPolicy/sluice-manager-claims", "ValidatingAdmissionPolicyBinding/sluice-manager-claims",
		"ValidatingAdmissionPolicy/sluice-manager-volumes", "ValidatingAdmissionPolicyBinding/sluice-manager-volumes",
		"ValidatingAdmissionPolicy/sluice-manager-webhooks", "ValidatingAdmissionPolicyBinding/sluice-manager-webhooks",
		"MutatingWebhookConfiguration/sluice", "ValidatingAdmissionPolicy/sluice-dropped-sources", "ValidatingAdmissionPolicyBinding/sluice-dropped-sources",
	} {
		if objects[want] == nil {
			t.Errorf("%s is not rendered", want)
		}
	}
	d := object[*appsv1.Deployment](t, objects, "Deployment/sluice-manager")
	if *d.Spec.Replicas != 2 {
		t.Errorf("replicas = %d, want 2", *d.Spec.Replicas)
	}
	manager := d.Spec.Template.Spec.Containers[0]
	if want := "images.sluice.dev/sluice-manager:dev"; manager.Image != want {
		t.Errorf("image = %q, want %q", manager.Image, want)
	}
	if manager.ImagePullPolicy != "" {
		t.Errorf("pull policy = %q, want Kubernetes' own default", manager.ImagePullPolicy)
	}
}

func TestValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	objects := render(t, map[string]any{
		"image":              map[string]any{"repository": "registry.example/sluice", "digest": digest, "pullPolicy": "Always"},
		"imagePullSecrets":   []any{map[string]any{"name": "registry"}},
		"replicas":           1,
		"priorityClassName":  "system-cluster-critical",
		"resources":          map[string]any{"limits": map[string]any{"memory": "1Gi"}},
		"excludedNamespaces": []any{"legacy"},
		"workers":            map[string]any{"serviceAccounts": []any{"data/restorer"}},
		"webhooks":           map[string]any{"populatorFailurePolicy": "Ignore"},
		"crds":               map[string]any{"install": false},
	})
	d := object[*appsv1.Deployment](t, objects, "Deployment/sluice-manager")
	pod := d.Spec.Template.Spec
	got := map[string]any{
		"image": pod.Containers[0].Image, "pull": string(pod.Containers[0].ImagePullPolicy),
		"secret": pod.ImagePullSecrets, "priority": pod.PriorityClassName, "replicas": *d.Spec.Replicas,
		"memory": pod.Containers[0].Resources.Limits.Memory().String(),
	}
	want := map[string]any{
		"image": "registry.example/sluice:0.1.0@" + digest, "pull": "Always",
		"secret": []corev1.LocalObjectReference{{Name: "registry"}}, "priority": "system-cluster-critical", "replicas": int32(1),
		"memory": "1Gi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Deployment: -want +got\n%s", diff)
	}
	hooks := object[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration/sluice")
	for _, hook := range hooks.Webhooks {
		if hook.ClientConfig.CABundle != nil {
			t.Errorf("webhook %q is rendered with a certificate authority; that is the manager's to write", hook.Name)
		}
		if *hook.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("webhook %q: failure policy %q, want Ignore", hook.Name, *hook.FailurePolicy)
		}
	}
	for key := range objects {
		if strings.HasPrefix(key, "CustomResourceDefinition/") {
			t.Errorf("%s is rendered in spite of crds.install: false", key)
		}
	}
	policy := object[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy/sluice-manager-pods")
	text := ""
	for _, v := range policy.Spec.Variables {
		text += v.Expression + "\n"
	}
	for _, v := range policy.Spec.Validations {
		text += v.Expression + "\n"
		if v.Message == "" {
			t.Errorf("rule without a message: %s", v.Expression)
		}
	}
	for _, want := range []string{`["kube-system","legacy"]`, `["data/restorer"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("policy of Pods does not speak of %s", want)
		}
	}
}

// TestSchema shows that a value that does nothing is refused, so that a typing
// error is not taken for a setting.
func TestSchema(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"Unknown":  {"replicaCount": 2},
		"Nested":   {"image": map[string]any{"repository": "r", "tags": "x"}},
		"Digest":   {"image": map[string]any{"repository": "r", "digest": "latest"}},
		"Replicas": {"replicas": 0},
		"Account":  {"workers": map[string]any{"serviceAccounts": []any{"restorer"}}},
	} {
		if _, err := chart(values).Template(t.Context(), config.Kubernetes); err == nil {
			t.Errorf("%s: values %v were accepted", name, values)
		}
	}
	if _, err := chart(nil).Template(t.Context(), "v1.33.0"); err == nil {
		t.Error("the chart renders for a Kubernetes that Sluice does not support")
	}
}

// TestLeastPrivilege keeps wildcards and Secrets out of what the manager may do.
func TestLeastPrivilege(t *testing.T) {
	objects := render(t, map[string]any{})
	for key, o := range objects {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		for _, rule := range role.Rules {
			all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
			if slices.Contains(all, "*") {
				t.Errorf("%s: wildcard in %v", key, rule)
			}
			for _, no := range []string{"secrets", "pods/log", "pods/exec", "nodes", "escalate", "impersonate", "bind"} {
				if slices.Contains(all, no) {
					t.Errorf("%s: %q in %v", key, no, rule)
				}
			}
		}
	}
	own := object[*rbacv1.Role](t, objects, "Role/sluice-manager")
	for _, rule := range own.Rules {
		if len(rule.ResourceNames) == 0 || slices.Contains(rule.Verbs, "create") {
			t.Errorf("in its own namespace the manager may touch more than its Lease and its Secret: %v", rule)
		}
	}
	account := object[*corev1.ServiceAccount](t, objects, "ServiceAccount/sluice-manager")
	for key, o := range objects {
		if b, ok := o.(*rbacv1.ClusterRoleBinding); ok {
			want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: helm.Namespace}}
			if diff := cmp.Diff(want, b.Subjects); diff != "" {
				t.Errorf("%s: -want +got\n%s", key, diff)
			}
		}
	}
}

// TestUninstallHook holds what runs before the chart goes to the manager's
// identity and to the one right that it has beside.
func TestUninstallHook(t *testing.T) {
	hooks, err := chart(map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}}).Hooks(t.Context(), config.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := map[string]runtime.Object{}
	for _, text := range hooks {
		o, kind, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, text)
		}
		meta, ok := o.(metav1.Object)
		if !ok || meta.GetAnnotations()["helm.sh/hook"] != "pre-delete" {
			t.Errorf("%s is a hook for something else", kind)
			continue
		}
		objects[kind.Kind+"/"+meta.GetName()] = o
	}
	role := object[*rbacv1.Role](t, objects, "Role/sluice-uninstall")
	want := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: []string{"sluice-manager"}, Verbs: []string{"patch"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rights of the hook: -want +got\n%s", diff)
	}
	object[*rbacv1.RoleBinding](t, objects, "RoleBinding/sluice-uninstall")
	pod := object[*batchv1.Job](t, objects, "Job/sluice-uninstall").Spec.Template
	if pod.Spec.ServiceAccountName != "sluice-manager" || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("the Job runs as %q with tolerations %v", pod.Spec.ServiceAccountName, pod.Spec.Tolerations)
	}
	if pod.Labels["app.kubernetes.io/component"] == "manager" {
		t.Error("the Job's Pod is one of the managers' to their Deployment and Services")
	}
}

// TestSourcesAreNotDroppedForWantOfAManager shows that a claim which names a
// namespace is refused while nobody can mark it, and not bound empty.
func TestSourcesAreNotDroppedForWantOfAManager(t *testing.T) {
	objects := render(t, map[string]any{})
	hooks := object[*admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration/sluice").Webhooks
	if len(hooks) != 1 || hooks[0].Name != "marks.sluice.dev" || *hooks[0].FailurePolicy != admissionregistrationv1.Fail || len(hooks[0].MatchConditions) != 1 {
		t.Errorf("the webhooks that change claims are %+v, want one that fails closed, for the claims that need it", hooks)
	}
	policy := object[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy/sluice-dropped-sources")
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("the policy against dropped sources has failure policy %q", *policy.Spec.FailurePolicy)
	}
}
