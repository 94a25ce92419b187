package webhook

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

const (
	victim = "6f0c2b9e-0000-4000-8000-000000000001"
	claims = "default"     // where the claim would be
	data   = "kube-public" // where its source would be
)

// strangePod is a worker as the manager makes it in another namespace than that
// of its claim.
func strangePod(namespace string) *corev1.Pod {
	name := fmt.Sprintf("sluice-%s-1", victim)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LabelClaimUID: victim, v1alpha1.LabelRole: v1alpha1.RoleWorker, v1alpha1.LabelAttempt: "1"},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claims + "/data"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			RestartPolicy:                corev1.RestartPolicyNever,
			Containers:                   []corev1.Container{{Name: "worker", Image: "busybox:latest"}},
			Volumes: []corev1.Volume{{Name: "target", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}},
		},
	}
}

func strangePrime(namespace string) *corev1.PersistentVolumeClaim {
	p := claimOf(namespace, "", "")
	p.Spec.DataSourceRef = nil
	p.ObjectMeta = strangePod(namespace).ObjectMeta
	p.Labels[v1alpha1.LabelRole] = v1alpha1.RolePrime
	return p
}

// thief has the manager's identity and rights, and changes nothing.
func thief(t *testing.T) client.Client {
	t.Helper()
	cfg := cluster.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + helm.Namespace + ":sluice-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + helm.Namespace, "system:authenticated"},
	}
	c, err := client.New(cfg, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return client.NewDryRunClient(c)
}

// TestFenceElsewhere tries, with the manager's identity, what placements do not
// need.
func TestFenceElsewhere(t *testing.T) {
	for _, ns := range []string{claims, data, helm.Namespace} {
		create(t, kube, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "powerful"}})
		if err := kube.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	ignored := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept-out-of", Labels: map[string]string{v1alpha1.LabelIgnore: "true"}}}
	create(t, kube, ignored)
	manager := thief(t)
	mount := func(p *corev1.Pod, secret string) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: secret},
		}})
	}
	pod := func(namespace string, change func(*corev1.Pod)) client.Object {
		p := strangePod(namespace)
		change(p)
		return p
	}
	prime := func(namespace string, change func(*corev1.PersistentVolumeClaim)) client.Object {
		p := strangePrime(namespace)
		change(p)
		return p
	}
	cases := map[string]struct {
		o    client.Object
		want string // empty: accepted
	}{
		"Source":          {pod(data, func(p *corev1.Pod) { mount(p, "credentials") }), ""},
		"System":          {pod(helm.Namespace, func(*corev1.Pod) {}), ""},
		"PrimeSource":     {prime(data, func(*corev1.PersistentVolumeClaim) {}), ""},
		"PrimeSystem":     {prime(helm.Namespace, func(*corev1.PersistentVolumeClaim) {}), ""},
		"OwnerlessBeside": {pod(claims, func(*corev1.Pod) {}), "owns"},
		"Unannotated":     {pod(data, func(p *corev1.Pod) { p.Annotations = nil }), "owns"},
		"OtherOwner": {pod(data, func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "1"}}
		}), "owns"},
		"Unlabelled": {pod(data, func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelClaimUID) }), "label sluice.dev/claim-uid"},
		"KubeSystem": {pod(metav1.NamespaceSystem, func(*corev1.Pod) {}), "keep out of"},
		"KeptOutOf":  {pod(ignored.Name, func(*corev1.Pod) {}), "keep out of"},
		"HostPath":   {pod(data, func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = hostPath() }), "mounts no volume but"},
		"Privileged": {pod(data, func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}), "no privileged container"},
		"HostNetwork":       {pod(helm.Namespace, func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "namespace of the node"},
		"Account":           {pod(data, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "powerful" }), "workers.serviceAccounts"},
		"OwnAccount":        {pod(helm.Namespace, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "sluice-manager" }), "workers.serviceAccounts"},
		"Token":             {pod(helm.Namespace, func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }), "no credentials of the API server"},
		"Certificates":      {pod(helm.Namespace, func(p *corev1.Pod) { mount(p, "sluice-webhook-certificates") }), "no certificates"},
		"PluginCertificate": {pod(helm.Namespace, func(p *corev1.Pod) { mount(p, "sluice-plugin-client") }), "no certificates"},
		"PluginCertificateProjected": {pod(helm.Namespace, func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "sluice-plugin-client"},
				}}}},
			}})
		}), "no certificates"},
		"CertificatesByEnv": {pod(helm.Namespace, func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "sluice-webhook-certificates"},
			}}}
		}), "no certificates"},
		"PrimeBeside":      {prime(claims, func(*corev1.PersistentVolumeClaim) {}), "owns"},
		"PrimeUnannotated": {prime(data, func(p *corev1.PersistentVolumeClaim) { p.Annotations = nil }), "owns"},
		"PrimeKubeSystem":  {prime(metav1.NamespaceSystem, func(*corev1.PersistentVolumeClaim) {}), "keep out of"},
		"PrimeOfData": {prime(data, func(p *corev1.PersistentVolumeClaim) {
			p.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "theirs"}
		}), "new and empty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := manager.Create(t.Context(), tc.o)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("what a placement needs is refused: %v", err)
			case tc.want != "" && err == nil:
				t.Error("accepted")
			case tc.want != "" && (!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("refused with %v, want %q", err, tc.want)
			}
		})
	}
}

func hostPath() corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
}
