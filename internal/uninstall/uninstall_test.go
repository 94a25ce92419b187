package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/manager"
)

const system = "sluice-system"

func options() Options {
	return Options{
		Namespace: system, Deployment: "sluice-manager", LeaseDuration: 600 * time.Millisecond,
		Identity: "us", Timeout: time.Second, Log: logr.Discard(),
	}
}

// elsewhere is a claim that bears the finalizer, and its prime elsewhere.
func elsewhere(name string) []client.Object {
	uid := types.UID("uid-" + name)
	return []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: uid, Finalizers: []string{"other/one", v1alpha1.FinalizerPopulation},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "library", Name: fmt.Sprintf("sluice-%s-1", uid), UID: "prime-" + uid,
			Labels: map[string]string{v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelRole: v1alpha1.RolePrime, v1alpha1.LabelAttempt: "1"},
		}},
	}
}

func TestLetGo(t *testing.T) {
	free := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "free", UID: "uid-free"}}
	beside := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "sluice-uid-free-1", UID: "beside",
		Labels: map[string]string{v1alpha1.LabelClaimUID: "uid-free", v1alpha1.LabelRole: v1alpha1.RolePrime, v1alpha1.LabelAttempt: "1"},
	}}
	cases := map[string]struct {
		reason string
		stuck  string // claim whose finalizer cannot be removed
		left   []string
		fails  string
	}{
		"All": {
			reason: "who bears the finalizer is let go; what lives beside its claim goes on, for the next installation",
			left:   []string{"shop/a other/one", "shop/b other/one", "shop/free", "shop/sluice-uid-free-1"},
		},
		"One": {
			reason: "one that cannot be let go is named and does not keep the others", stuck: "a", fails: `"shop/a"`,
			left: []string{"shop/a other/one,sluice.dev/population", "shop/b other/one", "shop/free", "shop/sluice-uid-free-1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := append(slices.Concat(elsewhere("a"), elsewhere("b")), free.DeepCopy(), beside.DeepCopy())
			to := clientfake.NewClientBuilder().WithScheme(manager.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if o.GetName() == tc.stuck {
						return errors.New("refused")
					}
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()
			err := letGo(t.Context(), to, options())
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: error %v, want %q in it", tc.reason, err, tc.fails)
			}
			var claims corev1.PersistentVolumeClaimList
			if err := to.List(t.Context(), &claims); err != nil {
				t.Fatal(err)
			}
			var left []string
			for i := range claims.Items {
				c := &claims.Items[i]
				left = append(left, strings.TrimSpace(c.Namespace+"/"+c.Name+" "+strings.Join(c.Finalizers, ",")))
			}
			slices.Sort(left)
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: what is left, -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// byPlugin is a claim, and a prime beside it that waits for its plugin.
func byPlugin(name string) (claim, prime *corev1.PersistentVolumeClaim) {
	uid := types.UID("uid-" + name)
	claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}}
	prime = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: fmt.Sprintf("sluice-%s-1", uid), UID: "prime-" + uid, Finalizers: []string{v1alpha1.FinalizerPlugin},
		Labels:          map[string]string{v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelRole: v1alpha1.RolePrime, v1alpha1.LabelAttempt: "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name, UID: uid, Controller: ptr.To(true)}},
	}}
	return claim, prime
}

func TestPrimesOfPluginsAreLetGo(t *testing.T) {
	claim, prime := byPlugin("a")
	_, orphan := byPlugin("gone")
	orphan.DeletionTimestamp = ptr.To(metav1.Now())
	to := clientfake.NewClientBuilder().WithScheme(manager.Scheme()).WithObjects(claim, prime, orphan).Build()
	if err := letGo(t.Context(), to, options()); err != nil {
		t.Fatal(err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := to.List(t.Context(), &claims); err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 1 || claims.Items[0].Name != claim.Name {
		t.Errorf("left: %+v, want the claim alone", claims.Items)
	}
}

func TestLead(t *testing.T) {
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: manager.LeaseName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](1),
				RenewTime: ptr.To(metav1.NewMicroTime(renewed)), AcquireTime: ptr.To(metav1.NewMicroTime(renewed)),
			},
		}
	}
	for name, tc := range map[string]struct {
		lease  *coordinationv1.Lease
		holder string
	}{
		"None":    {},
		"Free":    {lease: lease("", time.Now()), holder: "us"},
		"Dead":    {lease: lease("a manager that was killed", time.Now().Add(-time.Hour)), holder: "us"},
		"NotMade": {lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: manager.LeaseName}}, holder: "us"},
	} {
		t.Run(name, func(t *testing.T) {
			leases := fake.NewClientset()
			if tc.lease != nil {
				leases = fake.NewClientset(tc.lease)
			}
			calls := 0
			want := errors.New("what the work said")
			if err := lead(t.Context(), leases, options(), func(context.Context) error { calls++; return want }); !errors.Is(err, want) || calls != 1 {
				t.Errorf("lead: %v after %d calls, want the work done once and its error", err, calls)
			}
			now, err := leases.CoordinationV1().Leases(system).Get(t.Context(), manager.LeaseName, metav1.GetOptions{})
			if tc.lease == nil {
				if err == nil {
					t.Error("a Lease was made")
				}
				return
			}
			if err != nil || ptr.Deref(now.Spec.HolderIdentity, "") != tc.holder {
				t.Errorf("the Lease is %+v (%v), want it kept", now.Spec, err)
			}
		})
	}
	t.Run("Held", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		leases := fake.NewClientset(lease("a manager", time.Now().Add(time.Hour)))
		err := lead(ctx, leases, options(), func(context.Context) error { t.Error("the work is done beside a manager"); return nil })
		if err == nil || !strings.Contains(err.Error(), "a manager still holds it") {
			t.Errorf("lead: %v, want to be told that a manager leads", err)
		}
	})
}
