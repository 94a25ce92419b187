package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func TestCreatePopulationDrawsTheNonce(t *testing.T) {
	given := population()
	given.ResourceVersion, given.Spec.Nonce = "", ""
	seen := map[string]bool{}
	for range 2 {
		a, _ := applier(t, interceptor.Funcs{})
		out, err := a.Apply(t.Context(), populate.CreatePopulation{Population: given})
		if err != nil || len(out.Objects) != 1 {
			t.Fatalf("outcome is %+v, %v", out, err)
		}
		p, _ := out.Objects[0].(*v1alpha1.Population)
		if len(p.Spec.Nonce) < 20 || seen[p.Spec.Nonce] {
			t.Errorf("nonce %q is short or was used before", p.Spec.Nonce)
		}
		seen[p.Spec.Nonce] = true
	}
	if given.Spec.Nonce != "" || given.ResourceVersion != "" {
		t.Error("the step itself was changed")
	}
}

func TestCreateFindsWhatStandsInTheWay(t *testing.T) {
	cases := map[string]struct {
		reason     string
		standing   *corev1.PersistentVolumeClaim
		wantReason string
	}{
		"our own": {
			reason:   "an earlier create was answered by a timeout and did apply",
			standing: prime(labelled(claimUIDValue)),
		},
		"somebody's": {
			reason:     "what others made is never adopted",
			standing:   prime(nil),
			wantReason: v1alpha1.ReasonNameTaken,
		},
		"of another claim": {
			reason:     "a label of another claim is as good as none",
			standing:   prime(labelled("other")),
			wantReason: v1alpha1.ReasonNameTaken,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := applier(t, interceptor.Funcs{}, tc.standing)
			out, err := a.Apply(t.Context(), populate.CreatePrime{Prime: prime(labelled(claimUIDValue))})
			if err != nil || len(out.Objects) != 1 || out.Objects[0].GetResourceVersion() == "" {
				t.Fatalf("%s: outcome is %+v, %v; want the object that stands there", tc.reason, out, err)
			}
			got := ""
			if out.Refused != nil {
				got = out.Refused.Reason
			}
			if got != tc.wantReason {
				t.Errorf("%s: refused for %q, want %q", tc.reason, got, tc.wantReason)
			}
		})
	}
}

func TestRefusalsAreToldFromErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	forbidden := func(text string) error { return apierrors.NewForbidden(resource, objectName, errors.New(text)) }
	terminating := apierrors.NewForbidden(resource, objectName, errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cases := map[string]struct {
		err        error
		wantReason string
		wantStale  bool
		wantErr    bool
	}{
		"quota":                {err: forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"), wantReason: v1alpha1.ReasonQuotaExceeded},
		"quota without limits": {err: forbidden("failed quota: q: must specify limits.cpu"), wantReason: v1alpha1.ReasonQuotaExceeded},
		"Pod Security":         {err: forbidden(`violates PodSecurity "restricted:latest": runAsNonRoot != true`), wantReason: v1alpha1.ReasonPodSecurityRefused},
		"admission webhook":    {err: forbidden("admission webhook denied the request: no"), wantReason: v1alpha1.ReasonRequestRefused},
		"invalid": {
			err:        apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, objectName, field.ErrorList{field.Required(field.NewPath("spec"), "")}),
			wantReason: v1alpha1.ReasonRequestRefused,
		},
		"namespace is going":   {err: terminating, wantStale: true},
		"namespace is gone":    {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"), wantStale: true},
		"server is overloaded": {err: apierrors.NewTooManyRequests("later", 1), wantReason: v1alpha1.ReasonRequestRefused},
		"webhook out of reach": {
			err:        apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.org": connection refused`)),
			wantReason: v1alpha1.ReasonRequestRefused,
		},
		"server in trouble": {err: apierrors.NewInternalError(errors.New("etcdserver: leader changed")), wantErr: true},
		"timeout":           {err: apierrors.NewTimeoutError("slow", 1), wantErr: true},
		"no answer":         {err: errors.New("connection lost"), wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := applier(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return tc.err
			}})
			out, err := a.Apply(t.Context(), populate.CreatePrime{Prime: prime(labelled(claimUIDValue))})
			if (err != nil) != tc.wantErr || (err != nil && !errors.Is(err, tc.err)) {
				t.Errorf("error is %v, want one: %t", err, tc.wantErr)
			}
			if out.Stale != tc.wantStale {
				t.Errorf("stale is %t, want %t", out.Stale, tc.wantStale)
			}
			got := ""
			if out.Refused != nil {
				got = out.Refused.Reason
				if out.Refused.Message == "" || len(out.Refused.Message) > maxMessage {
					t.Errorf("message %q is empty or long", out.Refused.Message)
				}
			}
			if got != tc.wantReason {
				t.Errorf("refused for %q, want %q", got, tc.wantReason)
			}
		})
	}
}

func TestOverloadIsNoRefusalOfAChange(t *testing.T) {
	overloaded := apierrors.NewTooManyRequests("later", 1)
	a, _ := applier(t, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return overloaded
	}}, population())
	out, err := a.Apply(t.Context(), populate.Allocate{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: "7", To: 2})
	if !errors.Is(err, overloaded) || out.Refused != nil {
		t.Errorf("outcome is %+v, %v; want an error, so that an earlier refusal stays known", out, err)
	}
}

func TestRefusalMessageIsBounded(t *testing.T) {
	answer := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, objectName, errors.New(strings.Repeat("é", 3000)))
	out, err := refusedOr(fmt.Errorf("wrapped: %w", answer), "create", prime(nil))
	if err != nil || out.Refused == nil || len(out.Refused.Message) > maxMessage {
		t.Fatalf("outcome is %+v, %v", out, err)
	}
	if strings.ContainsRune(out.Refused.Message, '�') || strings.Contains(out.Refused.Message, "wrapped") {
		t.Errorf("message %q is cut inside a letter or not the server's own", out.Refused.Message)
	}
}

func TestNoWorkerWithoutRecordAndFiles(t *testing.T) {
	step := func(rv string) populate.Step {
		return populate.CreateWorker{
			Record: populate.WriteStatus{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: rv,
				Status: v1alpha1.PopulationStatus{Phase: v1alpha1.PhasePopulating}},
			Files:  files(labelled(claimUIDValue)),
			Worker: pod(labelled(claimUIDValue)),
		}
	}
	cases := map[string]struct {
		reason string
		rv     string
		// fails names the type of object whose create fails.
		fails string
		err   error
		// want are the types of the objects that were made.
		want    []string
		wantErr bool
	}{
		"all goes well": {
			rv:   "7",
			want: []string{"*v1.ConfigMap", "*v1.Pod"}, reason: "the order is record, files, worker",
		},
		"the record is refused": {
			rv:     "6",
			reason: "a worker that nobody knows of could run beside another",
		},
		"the files are refused": {
			rv: "7", fails: "*v1.ConfigMap",
			err:    apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, objectName, errors.New("exceeded quota: q")),
			reason: "a worker without its files would wait for ever",
		},
		"the worker's answer is lost": {
			rv: "7", fails: "*v1.Pod", err: errors.New("connection lost"),
			want: []string{"*v1.ConfigMap"}, wantErr: true, reason: "what was written before counts",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var made []string
			a, _ := applier(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if kind := fmt.Sprintf("%T", o); kind == tc.fails {
					return tc.err
				}
				made = append(made, fmt.Sprintf("%T", o))
				return c.Create(ctx, o, opts...)
			}}, population())
			out, err := a.Apply(t.Context(), step(tc.rv))
			if (err != nil) != tc.wantErr {
				t.Errorf("%s: error is %v, want one: %t", tc.reason, err, tc.wantErr)
			}
			if !slices.Equal(made, tc.want) {
				t.Errorf("%s: made %q, want %q", tc.reason, made, tc.want)
			}
			if recorded := tc.rv == "7"; recorded != (len(out.Objects) > 0) {
				t.Errorf("%s: outcome is %+v", tc.reason, out)
			}
		})
	}
}

func TestFilesThatStandMustBeTheWorkers(t *testing.T) {
	wanted := files(labelled(claimUIDValue))
	wanted.Annotations = map[string]string{v1alpha1.AnnotationNonce: "12345678"}
	wanted.BinaryData = map[string][]byte{"greeting": []byte("Hello, world")}
	cases := map[string]struct {
		reason string
		change func(*corev1.ConfigMap)
		taken  bool
	}{
		"the same": {
			reason: "an earlier create was answered by a timeout and did apply",
			change: func(*corev1.ConfigMap) {},
		},
		"of an earlier rendering": {
			reason: "the source has changed since, and the worker is recorded as made from the new one",
			change: func(c *corev1.ConfigMap) { c.BinaryData["greeting"] = []byte("Hello, moon") }, taken: true,
		},
		"with a file more": {
			reason: "the volume of the worker would show it",
			change: func(c *corev1.ConfigMap) { c.Data = map[string]string{"more": "text"} }, taken: true,
		},
		"with another nonce": {
			reason: "a label can be guessed",
			change: func(c *corev1.ConfigMap) { c.Annotations = nil }, taken: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			standing := wanted.DeepCopy()
			tc.change(standing)
			a, c := applier(t, interceptor.Funcs{}, population(), standing)
			out, err := a.Apply(t.Context(), populate.CreateWorker{
				Record: populate.WriteStatus{Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: "7"},
				Files:  wanted,
				Worker: pod(labelled(claimUIDValue)),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Refused != nil && out.Refused.Reason == v1alpha1.ReasonNameTaken; got != tc.taken {
				t.Errorf("%s: refusal is %+v, want the name taken: %t", tc.reason, out.Refused, tc.taken)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(wanted), &corev1.Pod{})
			if got := err == nil; got == tc.taken {
				t.Errorf("%s: the worker was made: %t (%v)", tc.reason, got, err)
			}
		})
	}
}

func TestFieldOwner(t *testing.T) {
	var got string
	a, _ := applier(t, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.CreateOption) error {
		o := client.CreateOptions{}
		o.ApplyOptions(opts)
		got = o.FieldManager
		return nil
	}})
	if _, err := a.Apply(t.Context(), populate.CreatePrime{Prime: prime(labelled(claimUIDValue))}); err != nil {
		t.Fatal(err)
	}
	if got != FieldOwner {
		t.Errorf("field owner is %q, want %q", got, FieldOwner)
	}
}
