package e2e

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// asManager is a client with the manager's identity and rights, as somebody
// who stole its token would have.
func asManager(t *testing.T) client.Client {
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

// fenced asserts that a request was refused by an admission policy of ours,
// with a message that says what is wrong.
func fenced(t *testing.T, why string, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s: accepted", why)
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		t.Errorf("%s: %v, want a refusal", why, err)
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'sluice-manager-") || !strings.Contains(err.Error(), want):
		t.Errorf("%s: refused with %q, want our policy and %q", why, err, want)
	}
}

// worker is a Pod as the manager makes it, for a claim that exists.
func worker(claim *corev1.PersistentVolumeClaim) *corev1.Pod {
	name := fmt.Sprintf("sluice-%s-1", claim.UID)
	return &corev1.Pod{
		ObjectMeta: temporary(claim, name, v1alpha1.RoleWorker),
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

func temporary(claim *corev1.PersistentVolumeClaim, name, role string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: claim.Namespace, Name: name,
		Labels: map[string]string{v1alpha1.LabelClaimUID: string(claim.UID), v1alpha1.LabelRole: role, v1alpha1.LabelAttempt: "1"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID, Controller: new(true),
		}},
	}
}

// TestFencePods tries to make Pods as the manager that are no workers.
func TestFencePods(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := claimFor(ns, "victim", waiting, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
	create(t, claim)
	manager := asManager(t)
	if err := manager.Create(t.Context(), worker(claim)); err != nil {
		t.Fatalf("a true worker is refused: %v", err)
	}
	scout := worker(claim)
	scout.Labels[v1alpha1.LabelRole] = v1alpha1.RoleScout
	if err := manager.Create(t.Context(), scout); err != nil {
		t.Fatalf("a true scout is refused: %v", err)
	}
	privileged := func(p *corev1.Pod) *corev1.SecurityContext {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{}
		return p.Spec.Containers[0].SecurityContext
	}
	volume := func(p *corev1.Pod, v corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: v})
	}
	cases := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"NoLabel":    {func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelClaimUID) }, "label sluice.dev/claim-uid"},
		"NoOwner":    {func(p *corev1.Pod) { p.OwnerReferences = nil }, "owns"},
		"OtherOwner": {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, "owns"},
		"Name":       {func(p *corev1.Pod) { p.Name = "coredns" }, "named sluice-"},
		"Role":       {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelRole] = "other" }, "workers and their scouts only"},
		"ScoutMounts": {func(p *corev1.Pod) {
			p.Labels[v1alpha1.LabelRole] = v1alpha1.RoleScout
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "target", MountPath: "/mnt"}}
		}, "no scout mount"},
		"ScoutDevice": {func(p *corev1.Pod) {
			p.Labels[v1alpha1.LabelRole] = v1alpha1.RoleScout
			p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "target", DevicePath: "/dev/target"}}
		}, "no scout mount"},
		"HostNetwork": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "namespace of the node"},
		"HostPID":     {func(p *corev1.Pod) { p.Spec.HostPID = true }, "namespace of the node"},
		"HostIPC":     {func(p *corev1.Pod) { p.Spec.HostIPC = true }, "namespace of the node"},
		"Privileged":  {func(p *corev1.Pod) { privileged(p).Privileged = new(true) }, "no privileged container"},
		"InitPrivileged": {func(p *corev1.Pod) {
			c := p.Spec.Containers[0]
			c.Name, c.SecurityContext = "init", &corev1.SecurityContext{Privileged: new(true)}
			p.Spec.InitContainers = []corev1.Container{c}
		}, "no privileged container"},
		"HostPort": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "port of the node"},
		"Capability": {func(p *corev1.Pod) {
			privileged(p).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		}, "capability"},
		"HostPath": {func(p *corev1.Pod) {
			volume(p, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
		}, "mounts no volume but"},
		"NFS": {func(p *corev1.Pod) {
			volume(p, corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/"}})
		}, "mounts no volume but"},
		"OtherClaim": {func(p *corev1.Pod) {
			volume(p, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "victim"}})
		}, "no claim but the prime"},
		"Token":         {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, "no credentials of the API server"},
		"AutomountTrue": {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(true) }, "no credentials of the API server"},
		"ProjectedToken": {func(p *corev1.Pod) {
			volume(p, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			}}})
		}, "no credentials of the API server"},
		"Node": {func(p *corev1.Pod) { p.Spec.NodeName = "node1" }, "placed by the scheduler"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := worker(claim)
			tc.change(p)
			fenced(t, name, manager.Create(t.Context(), p), tc.want)
		})
	}
	t.Run("ServiceAccount", func(t *testing.T) {
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "powerful"}})
		p := worker(claim)
		p.Spec.ServiceAccountName = "powerful"
		fenced(t, "service account", manager.Create(t.Context(), p), "workers.serviceAccounts")
	})
	t.Run("KubeSystem", func(t *testing.T) {
		p := worker(claim)
		p.Namespace = metav1.NamespaceSystem
		fenced(t, "kube-system", manager.Create(t.Context(), p), "keep out of")
	})
	t.Run("OwnNamespace", func(t *testing.T) {
		p := worker(claim)
		p.Namespace = helm.Namespace
		fenced(t, "the manager's namespace", manager.Create(t.Context(), p), "keep out of")
	})
	t.Run("Delete", func(t *testing.T) {
		p := reader(ns, "victim", "file", corev1.PersistentVolumeFilesystem)
		create(t, p)
		fenced(t, "a Pod of somebody's", manager.Delete(t.Context(), p), "deletes only what bears the label")
	})
}

// TestFenceClaims tries to change claims as the manager.
func TestFenceClaims(t *testing.T) {
	t.Parallel()
	ns := space(t)
	claim := claimFor(ns, "victim", waiting, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
	create(t, claim)
	manager := asManager(t)
	prime := func(change func(*corev1.PersistentVolumeClaim)) error {
		p := claimFor(ns, "", waiting, corev1.PersistentVolumeFilesystem, "", "", "")
		p.ObjectMeta = temporary(claim, fmt.Sprintf("sluice-%s-1", claim.UID), v1alpha1.RolePrime)
		p.Spec.DataSourceRef = nil
		if change != nil {
			change(p)
		}
		return manager.Create(t.Context(), p)
	}
	if err := prime(nil); err != nil {
		t.Errorf("a true prime is refused: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		"NoLabel": {func(p *corev1.PersistentVolumeClaim) { p.Labels = nil }, "only primes"},
		"Name":    {func(p *corev1.PersistentVolumeClaim) { p.Name = "data-db-0" }, "names primes"},
		"NoOwner": {func(p *corev1.PersistentVolumeClaim) { p.OwnerReferences = nil }, "owns"},
		"Volume":  {func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "pv-of-somebody" }, "new and empty"},
		"Source": {func(p *corev1.PersistentVolumeClaim) {
			p.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "secrets"}
		}, "new and empty"},
	} {
		fenced(t, "prime: "+name, prime(tc.change), tc.want)
	}

	merge := func(o client.Object, patch string) error {
		return manager.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	for patch, want := range map[string]string{
		`{"spec":{"resources":{"requests":{"storage":"1Ti"}}}}`:                "", // refused by Kubernetes or by us: it is Pending
		`{"metadata":{"labels":{"app":"x"}}}`:                                  "labels and owners",
		`{"metadata":{"annotations":{"app":"x"}}}`:                             "no annotation on claims",
		`{"metadata":{"finalizers":["kubernetes.io/pvc-protection","app/x"]}}`: "no finalizer but",
	} {
		if err := merge(claim.DeepCopy(), patch); want == "" {
			if err == nil {
				t.Errorf("patch %s: accepted", patch)
			}
		} else {
			fenced(t, "patch "+patch, err, want)
		}
	}
	for _, patch := range []string{
		`{"metadata":{"annotations":{"sluice.dev/claim":"x"}}}`,
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`,
	} {
		if err := merge(claim.DeepCopy(), patch); err != nil {
			t.Errorf("patch %s is refused: %v", patch, err)
		}
	}
	fenced(t, "delete a claim of somebody's", manager.Delete(t.Context(), claim), "only primes")
}

// TestFenceVolumes tries to take volumes away as the manager.
func TestFenceVolumes(t *testing.T) {
	t.Parallel()
	ns := space(t)
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "x"}))
	create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src"))
	claim := succeeded(t, ns, "claim")
	manager := asManager(t)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	for patch, want := range map[string]string{
		`{"spec":{"claimRef":{"namespace":"evil","name":"evil","uid":"1"}}}`: "hands over only",
		`{"spec":{"claimRef":null}}`:                                         "hands over only",
		`{"spec":{"accessModes":["ReadWriteMany"]}}`:                         "access modes only",
		`{"spec":{"capacity":{"storage":"1Ti"}}}`:                            "nothing in a volume's spec but",
		`{"spec":{"storageClassName":"other"}}`:                              "nothing in a volume's spec but",
		`{"spec":{"mountOptions":["suid"]}}`:                                 "nothing in a volume's spec but",
		`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`:                "reclaim policy only",
		`{"metadata":{"labels":{"app":"x"}}}`:                                "no label of a volume but",
		`{"metadata":{"labels":{"sluice.dev/role":"foreign"}}}`:              "only onto volumes",
		`{"metadata":{"labels":{"sluice.dev/claim-uid":"x"}}}`:               "only onto volumes",
		`{"metadata":{"annotations":{"app":"x"}}}`:                           "no annotation, finalizer or owner",
		`{"metadata":{"finalizers":null}}`:                                   "no annotation, finalizer or owner",
	} {
		err := manager.Patch(t.Context(), volume.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		fenced(t, "patch "+patch, err, want)
	}
	ok := `{"metadata":{"labels":{"sluice.dev/partial":"true","topology.kubernetes.io/zone":"zone-a"}}}`
	if err := manager.Patch(t.Context(), volume.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(ok))); err != nil {
		t.Errorf("patch %s is refused: %v", ok, err)
	}
}

// TestFenceWebhooks tries to change the manager's webhooks as the manager.
func TestFenceWebhooks(t *testing.T) {
	t.Parallel()
	manager := asManager(t)
	change := func(f func(*admissionregistrationv1.ValidatingWebhookConfiguration)) error {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := kube.Get(t.Context(), types.NamespacedName{Name: "sluice"}, c); err != nil {
			t.Fatal(err)
		}
		f(c)
		return manager.Update(t.Context(), c)
	}
	if err := change(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = nil
	}); err != nil {
		t.Errorf("another certificate authority is refused: %v", err)
	}
	fenced(t, "other rules", change(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].Rules[0].Resources = []string{"secrets"}
	}), "nothing in its webhooks but")
	fenced(t, "another address", change(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.Service.Namespace = "evil"
	}), "nothing in its webhooks but")
	fenced(t, "one less", change(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks = c.Webhooks[1:]
	}), "adds, removes and renames")
}

// TestFenceRights asks for what the manager's role does not allow at all.
func TestFenceRights(t *testing.T) {
	t.Parallel()
	user := "system:serviceaccount:" + helm.Namespace + ":sluice-manager"
	allowed := func(a authorizationv1.ResourceAttributes) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &a}}
		create(t, review)
		return review.Status.Allowed
	}
	own := authorizationv1.ResourceAttributes{Namespace: helm.Namespace, Verb: "get", Resource: "secrets", Name: "sluice-webhook-certificates"}
	if !allowed(own) {
		t.Error("the manager may not read its own certificates")
	}
	const registration = "admissionregistration.k8s.io"
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets"},
		{Verb: "list", Resource: "secrets"},
		{Verb: "create", Resource: "secrets", Namespace: helm.Namespace},
		{Verb: "get", Resource: "secrets", Namespace: helm.Namespace, Name: "other"},
		{Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "create", Resource: "pods", Subresource: "binding"},
		{Verb: "patch", Resource: "pods", Subresource: "ephemeralcontainers"},
		{Verb: "update", Resource: "pods"},
		{Verb: "deletecollection", Resource: "pods"},
		{Verb: "create", Resource: "persistentvolumes"},
		{Verb: "delete", Resource: "persistentvolumes"},
		{Verb: "delete", Resource: "configmaps"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Verb: "patch", Group: registration, Resource: "validatingadmissionpolicies"},
		{Verb: "patch", Group: registration, Resource: "validatingadmissionpolicybindings"},
		{Verb: "patch", Group: registration, Resource: "validatingwebhookconfigurations", Name: "other"},
		{Verb: "patch", Group: registration, Resource: "validatingwebhookconfigurations", Name: "sluice"},
		{Verb: "create", Group: registration, Resource: "mutatingwebhookconfigurations"},
		{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Verb: "create", Group: "sluice.dev", Resource: "populators"},
		{Verb: "update", Group: "populator.storage.k8s.io", Resource: "volumepopulators"},
		{Verb: "update", Group: groupHello, Resource: "hellos"},
	} {
		if allowed(a) {
			t.Errorf("the manager may %+v", a)
		}
	}
}
