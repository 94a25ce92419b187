package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// authority is the certificate authority that the API server checks the
// webhooks with.
func authority(ctx context.Context) (string, error) {
	hooks, err := get(ctx, "", "sluice", &admissionregistrationv1.ValidatingWebhookConfiguration{})
	if err != nil {
		return "", err
	}
	bundle := ""
	for _, h := range hooks.Webhooks {
		if len(h.ClientConfig.CABundle) == 0 {
			return "", fmt.Errorf("webhook %q has no certificate authority", h.Name)
		}
		bundle += string(h.ClientConfig.CABundle)
	}
	return bundle, nil
}

// TestUninstall uninstalls the chart: nothing of it stays but the kinds and
// their objects, claims stay filled and can be deleted, and a new installation
// takes over.
func TestUninstall(t *testing.T) {
	ns := space(t)
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": "kept"}))
	create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src"))
	succeeded(t, ns, "claim")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if _, err := sluice.Ensure(ctx); err != nil {
			t.Errorf("install again: %v", err)
		}
	})
	if err := sluice.Uninstall(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "nothing of the chart is left", patience, func(ctx context.Context) error {
		left, err := kubectl(ctx, "get", "-A", "-o", "name", "-l", "app.kubernetes.io/name=sluice",
			"deployments,replicasets,jobs,pods,services,endpointslices,serviceaccounts,leases,secrets,poddisruptionbudgets,roles,rolebindings,"+
				"clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,"+
				"validatingadmissionpolicies,validatingadmissionpolicybindings")
		if err == nil && strings.TrimSpace(left) != "" {
			err = errors.New("there is something")
		}
		if err != nil {
			return fmt.Errorf("list what has its label: %w: %s", err, left)
		}
		left, err = kubectl(ctx, "-n", helm.Namespace, "get", "-o", "name", "secrets,configmaps,leases,serviceaccounts,pods,services,endpointslices")
		if err != nil {
			return fmt.Errorf("%w: %s", err, left)
		}
		for line := range strings.Lines(left) {
			// What every namespace has.
			if line = strings.TrimSpace(line); line != "serviceaccount/default" && line != "configmap/kube-root-ca.crt" {
				return fmt.Errorf("%s is left in %s", line, helm.Namespace)
			}
		}
		return nil
	})
	if p, err := populationOf(t.Context(), ns, "claim"); err != nil || p.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the record of a filled volume went with the chart: %v", err)
	}
	pod := reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "kept\n")

	// The registration kind is the Kubernetes project's: where somebody else
	// brought it, it stays theirs.
	const owner = "meta.helm.sh/release-name"
	kind := &apiextensionsv1.CustomResourceDefinition{}
	kind.Name = "volumepopulators.populator.storage.k8s.io"
	theirs := `{"metadata":{"annotations":{"` + owner + `":null},"labels":{"app.kubernetes.io/managed-by":"somebody"}}}`
	if err := kube.Patch(t.Context(), kind, client.RawPatch(types.MergePatchType, []byte(theirs))); err != nil {
		t.Fatal(err)
	}

	// A claim that nobody fills now is filled by the next installation.
	late := claimFor(ns, "late", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
	create(t, late)
	if _, err := sluice.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kind, err := get(t.Context(), "", kind.Name, kind); err != nil || kind.Annotations[owner] != "" {
		t.Errorf("the chart took over somebody's kind: %v (%v)", kind.Annotations, err)
	}
	succeeded(t, ns, "late")
	if p, err := populationOf(t.Context(), ns, "claim"); err != nil || p.Spec.Attempt != 1 || p.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the new installation touched a settled claim: %+v (%v)", p, err)
	}
}
