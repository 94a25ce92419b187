package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// grantable makes the kind ReferenceGrant, which stays.
func grantable(t *testing.T) {
	t.Helper()
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "referencegrants.yaml"))
	mustKubectl(t, "wait", "--for=condition=Established", "crd/referencegrants.gateway.networking.k8s.io", "--timeout=30s")
}

// grantSources lets the claims of one namespace be filled from HTTPSources of
// another.
func grantSources(t *testing.T, claims, data string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
		"metadata": map[string]any{"namespace": data, "name": "claims"},
		"spec": map[string]any{
			"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": claims}},
			"to":   []any{map[string]any{"group": groupSluice, "kind": "HTTPSource"}},
		},
	}}
	create(t, u)
}

// TestCrossNamespaceExample applies the example as it stands: the Secret is
// mounted where it is, and the volume is where the claim is.
func TestCrossNamespaceExample(t *testing.T) {
	t.Parallel()
	servedSources(t)
	grantable(t)
	const library, room = "library", "reading-room"
	for _, ns := range []string{library, room} {
		t.Cleanup(func() { deleteSpace(t, ns) })
	}
	mustKubectl(t, "apply", "-f", example("cross-namespace", "library.yaml"))
	mustKubectl(t, "apply", "-f", example("cross-namespace", "reading-room.yaml"))
	mustKubectl(t, "-n", room, "wait", "--for=condition=Complete", "job/read", "--timeout=90s")
	if got, want := mustKubectl(t, "-n", room, "logs", "job/read"), "Moby-Dick\nThe Time Machine\n"; got != want {
		t.Errorf("the job printed %q, want %q", got, want)
	}
	succeeded(t, room, "catalog")
	quiet(t, room, waitedForConsumer)
	quiet(t, library, 0)
	if p, err := populationOf(t.Context(), room, "catalog"); err != nil || p.Spec.Namespace != library || p.Status.Source.Namespace != library {
		t.Errorf("the record says namespace %q and source %+v (%v), want both in %q", p.Spec.Namespace, p.Status.Source, err, library)
	}
	for _, ns := range []string{library, room} {
		eventually(t, "nothing temporary is left in "+ns, 20*time.Second, func(ctx context.Context) error {
			out, err := kubectl(ctx, "-n", ns, "get", "pods,pvc", "-o", "name", "-l", v1alpha1.LabelClaimUID)
			if err == nil && strings.TrimSpace(out) != "" {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
	}
}

// TestUninstallLetsClaimsGo uninstalls the chart while a claim is filled by a
// worker of another namespace and another such claim waits for its deletion:
// neither is held, and the next installation fills the first.
func TestUninstallLetsClaimsGo(t *testing.T) {
	servedSources(t)
	grantable(t)
	ns, data := space(t), space(t)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/private", private(byToken, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		content([]byte("filled\n"))(w, r)
	}))
	s := serve(t, false, mux)
	grantSources(t, ns, data)
	create(t, secret(data, "credentials", map[string]string{"token": secretToken}))
	create(t, source(groupSluice, "HTTPSource", data, map[string]any{"url": s.URL + "/private", "secretRef": map[string]any{"name": "credentials"}}))
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range []string{"claim", "deleted"} {
		claim := claimFor(ns, name, immediate, corev1.PersistentVolumeFilesystem, groupSluice, "HTTPSource", "src")
		claim.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: data}
		create(t, claim)
		claims = append(claims, claim)
	}
	for _, claim := range claims {
		eventually(t, "a worker runs beside the source of "+claim.Name, patience, func(ctx context.Context) error {
			p, err := get(ctx, data, fmt.Sprintf("sluice-%s-1", claim.UID), &corev1.Pod{})
			if err == nil && p.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", p.Status.Phase)
			}
			return err
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if _, err := sluice.Ensure(ctx); err != nil {
			t.Errorf("install again: %v", err)
		}
	})
	if err := sluice.Uninstall(); err != nil {
		jobs, _ := kubectl(t.Context(), "-n", sluice.Namespace, "logs", "job/sluice-uninstall", "--tail=50")
		t.Fatalf("%v\nthe hook's log:\n%s", err, jobs)
	}
	for _, claim := range claims {
		now, err := claimOf(t.Context(), ns, claim.Name)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(now.Finalizers, v1alpha1.FinalizerPopulation) {
			t.Errorf("claim %q still bears our finalizer", claim.Name)
		}
		if now.Spec.VolumeName != "" {
			t.Errorf("claim %q is bound to volume %q, which is half filled", claim.Name, now.Spec.VolumeName)
		}
		clean(t, claim.UID, 20*time.Second)
	}
	if err := kube.Delete(t.Context(), claims[1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted claim goes although nobody is there to see to it", patience, func(ctx context.Context) error {
		err := kube.Get(ctx, types.NamespacedName{Namespace: ns, Name: "deleted"}, &corev1.PersistentVolumeClaim{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	eventually(t, "no volume of a prime is left", patience, func(ctx context.Context) error { return noVolumeOf(ctx, data) })

	close(release)
	if _, err := sluice.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(t, ns, "claim")
	pod := reader(ns, "claim", "private", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "filled\n")
}

// noVolumeOf says which volumes belong to claims of a namespace.
func noVolumeOf(ctx context.Context, namespace string) error {
	var volumes corev1.PersistentVolumeList
	if err := kube.List(ctx, &volumes); err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for i := range volumes.Items {
		if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
			return fmt.Errorf("volume %q belongs to claim %s/%s", volumes.Items[i].Name, ref.Namespace, ref.Name)
		}
	}
	return nil
}

// TestSecretOffers installs with secrets.requireOffer: a Secret is used once its
// owner has offered it, by Sluice's own worker and before an image of others.
func TestSecretOffers(t *testing.T) {
	servedSources(t)
	strict := sluice
	strict.Values = map[string]any{"secrets": map[string]any{"requireOffer": true}}
	for key, value := range sluice.Values {
		strict.Values[key] = value
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
		defer cancel()
		if _, err := sluice.Upgrade(ctx); err != nil {
			t.Errorf("no longer require offers: %v", err)
		}
	})
	if _, err := strict.Upgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "token.yaml"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if out, err := kubectl(ctx, "delete", "--ignore-not-found", "-f", filepath.Join("testdata", "token.yaml")); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/token", "--timeout=60s")
	mux := http.NewServeMux()
	mux.Handle("/private", private(byToken, content([]byte("filled\n"))))
	s := serve(t, false, mux)

	t.Run("Cases", func(t *testing.T) {
		for name, tc := range map[string]struct {
			reason      string
			group, kind string
			spec        map[string]any
			offer       string
			file, want  string
		}{
			"Own": {
				reason: "our worker looks itself", group: groupSluice, kind: "HTTPSource",
				spec:  map[string]any{"url": s.URL + "/private", "secretRef": map[string]any{"name": "credentials"}},
				offer: "HTTPSource.sluice.dev", file: "private", want: "filled\n",
			},
			"Foreign": {
				reason: "before another image a container of ours looks", group: groupTest, kind: "Token",
				spec:  map[string]any{"secret": "credentials"},
				offer: "Token.e2e.sluice.dev", file: "text", want: secretToken + "\n",
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := space(t)
				credentials := secret(ns, "credentials", map[string]string{"token": secretToken})
				create(t, credentials)
				create(t, source(tc.group, tc.kind, ns, tc.spec))
				claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, tc.group, tc.kind, "src")
				create(t, claim)
				ended(t, claim)
				said := reason(t, ns, "claim", v1alpha1.ReasonSecretNotOffered)
				if !strings.Contains(said, "sluice.dev.offer") || strings.Contains(said, secretToken) {
					t.Errorf("%s: message %q, want the key and no value", tc.reason, said)
				}
				neverBound(t, claim)

				offer := fmt.Appendf(nil, `{"stringData":{"sluice.dev.offer":%q}}`, tc.offer)
				if err := kube.Patch(t.Context(), credentials, client.RawPatch(types.MergePatchType, offer)); err != nil {
					t.Fatal(err)
				}
				if err := kube.Delete(t.Context(), &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "claim"}}); err != nil {
					t.Fatal(err)
				}
				succeeded(t, ns, "claim")
				pod := reader(ns, "claim", tc.file, corev1.PersistentVolumeFilesystem)
				create(t, pod)
				prints(t, pod, tc.want)
			})
		}
		t.Run("ForeignAndLate", func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			create(t, source(groupTest, "Token", ns, map[string]any{"secret": "late"}))
			claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Token", "src")
			create(t, claim)
			if said := event(t, ns, "claim", v1alpha1.ReasonSourceMissing); !strings.Contains(said, `"late"`) {
				t.Errorf("the event says %q, want the Secret that is optional elsewhere", said)
			}
			neverBound(t, claim)
			create(t, secret(ns, "late", map[string]string{"token": secretToken}))
			reason(t, ns, "claim", v1alpha1.ReasonSecretNotOffered)
			neverBound(t, claim)
		})
	})
}
