package release

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

const claimUID = types.UID("6f9b")

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: claimUID, Finalizers: []string{"other/one", v1alpha1.FinalizerPopulation}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-0"},
	}
}

func temporary1(name, uid, role string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{
		v1alpha1.LabelClaimUID: string(claimUID), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: role}}
}

func prime() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: temporary1("sluice-6f9b-1", "prime", v1alpha1.RolePrime),
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}}
}

// filled is a prime whose volume a plugin fills.
func filled() *corev1.PersistentVolumeClaim {
	p := prime()
	p.Finalizers = []string{"kubernetes.io/pvc-protection", v1alpha1.FinalizerPlugin}
	p.Annotations = map[string]string{v1alpha1.AnnotationPopulator: "snapshots"}
	return p
}

func worker() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: temporary1("sluice-6f9b-1", "worker", v1alpha1.RoleWorker)}
}

func volume(policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: policy, ClaimRef: &corev1.ObjectReference{UID: "prime"}}}
}

// matched is a volume of somebody's that Kubernetes has matched with the prime.
func matched(policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	pv := volume(policy)
	pv.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
	return pv
}

func population(phase v1alpha1.Phase) *v1alpha1.Population {
	return &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       v1alpha1.PopulationSpec{ClaimUID: claimUID, Attempt: 1},
		Status:     v1alpha1.PopulationStatus{Phase: phase},
	}
}

func lease(age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: leaseName},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("manager-1"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age)))},
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule allows it"))
}

// call runs the verb as main would.
func call(t *testing.T, to client.Client, input string, args ...string) (out string, code int) {
	t.Helper()
	var buf bytes.Buffer
	streams := cli.IOStreams{In: strings.NewReader(input), Out: &buf, Err: &buf}
	cmd := New(streams, func() (client.Client, string, error) { return to, "shop", nil }, func() time.Time { return now })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if code = cli.ExitCode(err); code == cli.ExitError || code == cli.ExitUsage {
		buf.WriteString(err.Error() + "\n")
	}
	return buf.String(), code
}

// left names what of the claim's is still there.
func left(t *testing.T, from client.Client) (all []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.PersistentVolumeClaimList{}} {
		if err := from.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		switch l := list.(type) {
		case *corev1.PodList:
			for _, o := range l.Items {
				all = append(all, "pod "+o.Name)
			}
		case *corev1.ConfigMapList:
			for _, o := range l.Items {
				all = append(all, "configmap "+o.Name)
			}
		case *corev1.PersistentVolumeClaimList:
			for _, o := range l.Items {
				all = append(all, "claim "+o.Name+" "+strings.Join(o.Finalizers, ","))
			}
		}
	}
	return all
}

func TestRelease(t *testing.T) {
	const held, free = "claim data other/one,sluice.dev/population", "claim data other/one"
	const aWorker, aPrime = "pod sluice-6f9b-1", "claim sluice-6f9b-1 "
	all := []string{aWorker, held, aPrime}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		funcs   interceptor.Funcs
		input   string
		args    []string
		code    int
		left    []string
	}{
		"agreed": {
			reason:  "after a yes, temporaries go and then the finalizer",
			objects: []client.Object{claim(), prime(), worker(), volume(corev1.PersistentVolumeReclaimDelete), lease(time.Hour), population(v1alpha1.PhasePopulating)},
			input:   "y\n", left: []string{free},
		},
		"not-agreed": {
			reason:  "anything but a yes is a no",
			objects: []client.Object{claim(), prime(), worker()},
			input:   "what?\n", code: cli.ExitAct, left: all,
		},
		"no-input": {
			reason:  "the end of the input is a no",
			objects: []client.Object{claim(), prime(), worker()},
			code:    cli.ExitAct, left: all,
		},
		"dry-run": {
			reason:  "a dry run says what would be done, and what stays",
			objects: []client.Object{claim(), prime(), worker(), volume(corev1.PersistentVolumeReclaimRetain)},
			args:    []string{"--dry-run"}, left: all,
		},
		"matched": {
			reason:  "a prime that was matched with somebody's volume would take it along",
			objects: []client.Object{claim(), prime(), worker(), matched(corev1.PersistentVolumeReclaimDelete)},
			args:    []string{"--yes"}, left: []string{free, aPrime},
		},
		"matched-retained": {
			reason:  "unless the volume is retained",
			objects: []client.Object{claim(), prime(), worker(), matched(corev1.PersistentVolumeReclaimRetain)},
			args:    []string{"--yes"}, left: []string{free},
		},
		"manager-at-work": {
			reason:  "a manager that is at work does it better",
			objects: []client.Object{claim(), prime(), worker(), lease(2 * time.Second), population(v1alpha1.PhasePopulating)},
			args:    []string{"--yes"}, code: cli.ExitAct, left: all,
		},
		"manager-at-work-forced": {
			reason:  "unless it is insisted on",
			objects: []client.Object{claim(), prime(), worker(), lease(2 * time.Second), population(v1alpha1.PhasePopulating)},
			args:    []string{"--yes", "--force"}, left: []string{free},
		},
		"manager-done": {
			reason:  "a manager that is done with the claim is no obstacle",
			objects: []client.Object{claim(), prime(), lease(2 * time.Second), population(v1alpha1.PhaseFailed)},
			args:    []string{"--yes"}, left: []string{free},
		},
		"lease-forbidden": {
			reason:  "who may not see the manager has to insist",
			objects: []client.Object{claim(), prime(), population(v1alpha1.PhasePopulating)},
			funcs: interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*coordinationv1.Lease); ok {
					return forbidden("leases")
				}
				return c.Get(ctx, key, o, opts...)
			}},
			args: []string{"--yes"}, code: cli.ExitAct, left: []string{held, aPrime},
		},
		"plugin": {
			reason:  "a prime waits for its plugin no more, and for others it does",
			objects: []client.Object{claim(), filled(), volume(corev1.PersistentVolumeReclaimDelete), lease(time.Hour), population(v1alpha1.PhasePopulating)},
			args:    []string{"--yes", "--timeout=1ms", "--force"}, left: []string{free, aPrime + "kubernetes.io/pvc-protection"},
		},
		"plugin-going": {
			reason: "nor does one that was deleted before",
			objects: []client.Object{claim(), func() client.Object {
				p := filled()
				p.Finalizers, p.DeletionTimestamp = []string{v1alpha1.FinalizerPlugin}, ptr.To(metav1.NewTime(now))
				return p
			}()},
			args: []string{"--yes"}, left: []string{free},
		},
		"plugin-at-work": {
			reason:  "while a manager is there to tell the plugin, it does",
			objects: []client.Object{claim(), filled(), lease(2 * time.Second), population(v1alpha1.PhasePopulating)},
			args:    []string{"--yes"}, code: cli.ExitAct, left: []string{held, aPrime + "kubernetes.io/pvc-protection,sluice.dev/plugin"},
		},
		"nothing-to-do": {
			reason:  "a claim without anything of ours",
			objects: []client.Object{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: claimUID}}},
			left:    []string{"claim data "},
		},
		"foreign": {
			reason: "label without name proves nothing, and neither does another claim's",
			objects: []client.Object{claim(),
				&corev1.ConfigMap{ObjectMeta: temporary1("precious", "x", v1alpha1.RoleWorker)},
				&corev1.ConfigMap{ObjectMeta: temporary1("sluice-6f9b-1", "y", v1alpha1.RoleWorker)},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sluice-other-1", Labels: map[string]string{v1alpha1.LabelClaimUID: "other"}}},
			},
			args: []string{"--yes"}, left: []string{"pod sluice-other-1", "configmap precious", free},
		},
		"stuck": {
			reason: "the finalizer stays while a temporary does",
			objects: []client.Object{claim(), &corev1.Pod{ObjectMeta: func() metav1.ObjectMeta {
				m := temporary1("sluice-6f9b-1", "worker", v1alpha1.RoleWorker)
				m.Finalizers = []string{"node/is-dead"}
				return m
			}()}},
			args: []string{"--yes", "--timeout=1ms"}, code: cli.ExitError, left: []string{aWorker, held},
		},
		"stuck-forced": {
			reason: "unless it is insisted on",
			objects: []client.Object{claim(), &corev1.Pod{ObjectMeta: func() metav1.ObjectMeta {
				m := temporary1("sluice-6f9b-1", "worker", v1alpha1.RoleWorker)
				m.Finalizers = []string{"node/is-dead"}
				return m
			}()}},
			args: []string{"--yes", "--force", "--timeout=1ms"}, left: []string{aWorker, free},
		},
		"stuck-before": {
			reason: "also while one does that somebody deleted before",
			objects: []client.Object{claim(), &corev1.Pod{ObjectMeta: func() metav1.ObjectMeta {
				m := temporary1("sluice-6f9b-1", "worker", v1alpha1.RoleWorker)
				m.Finalizers, m.DeletionTimestamp = []string{"node/is-dead"}, ptr.To(metav1.NewTime(now))
				return m
			}()}},
			args: []string{"--yes", "--timeout=1ms"}, code: cli.ExitError, left: []string{aWorker, held},
		},
		"no-right-to-delete": {
			reason:  "a refused delete ends it before the finalizer goes",
			objects: []client.Object{claim(), prime()},
			funcs: interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return forbidden("persistentvolumeclaims")
			}},
			args: []string{"--yes"}, code: cli.ExitError, left: []string{held, aPrime},
		},
		"own-namespace-only": {
			reason:  "who may list in the claim's namespace alone gets what is there",
			objects: []client.Object{claim(), prime()},
			funcs: interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				o := client.ListOptions{}
				o.ApplyOptions(opts)
				if o.Namespace == "" && o.LabelSelector != nil {
					return forbidden("any")
				}
				return c.List(ctx, l, opts...)
			}},
			args: []string{"--yes"}, left: []string{free},
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(tc.objects...).WithInterceptorFuncs(tc.funcs).Build()
			got, code := call(t, to, tc.input, append([]string{"pvc/data"}, tc.args...)...)
			if code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.reason, code, tc.code, got)
			}
			if diff := cmp.Diff(tc.left, left(t, to)); diff != "" {
				t.Errorf("%s: what is left, -want +got:\n%s", tc.reason, diff)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPrimeThatOutlivedItsClaim is released by its own name, once it is deleted.
func TestPrimeThatOutlivedItsClaim(t *testing.T) {
	stays := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(filled()).Build()
	if out, code := call(t, stays, "", "pvc/sluice-6f9b-1", "--yes"); code != cli.ExitOK || !strings.Contains(out, "has no temporaries to delete") {
		t.Errorf("a prime that nobody deleted: exit code %d\n%s", code, out)
	}
	p := filled()
	p.Finalizers, p.DeletionTimestamp = []string{v1alpha1.FinalizerPlugin}, ptr.To(metav1.NewTime(now))
	to := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(p, lease(time.Hour)).Build()
	out, code := call(t, to, "", "pvc/sluice-6f9b-1", "--yes")
	if code != cli.ExitOK || !strings.Contains(out, `The plugin of Populator "snapshots" is not told to end`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if diff := cmp.Diff([]string(nil), left(t, to)); diff != "" {
		t.Errorf("what is left, -want +got:\n%s", diff)
	}
	alive := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(p, lease(2*time.Second)).Build()
	if out, code := call(t, alive, "", "pvc/sluice-6f9b-1", "--yes"); code != cli.ExitAct {
		t.Errorf("beside a manager: exit code %d, want it refused\n%s", code, out)
	}
}

func TestDeleteNamesTheUID(t *testing.T) {
	var seen []types.UID
	to := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(claim(), prime(), worker()).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			d := client.DeleteOptions{}
			d.ApplyOptions(opts)
			if d.Preconditions != nil && d.Preconditions.UID != nil {
				seen = append(seen, *d.Preconditions.UID)
			}
			return c.Delete(ctx, o, opts...)
		}}).Build()
	if out, code := call(t, to, "", "pvc/data", "--yes"); code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if diff := cmp.Diff([]types.UID{"worker", "prime"}, seen); diff != "" {
		t.Errorf("UIDs of deletes, -want +got:\n%s", diff)
	}
}

func TestFinalizerOfClaimThatChanges(t *testing.T) {
	conflicts := 2
	to := fake.NewClientBuilder().WithScheme(cli.Scheme()).WithObjects(claim()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if conflicts--; conflicts >= 0 {
				return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("changed"))
			}
			return c.Patch(ctx, o, p, opts...)
		}}).Build()
	if out, code := call(t, to, "", "pvc", "data", "--yes"); code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if diff := cmp.Diff([]string{"claim data other/one"}, left(t, to)); diff != "" {
		t.Errorf("what is left, -want +got:\n%s", diff)
	}
}

func TestUsage(t *testing.T) {
	to := fake.NewClientBuilder().WithScheme(cli.Scheme()).Build()
	for name, args := range map[string][]string{
		"no claim":         {},
		"another kind":     {"pv/data"},
		"no time":          {"pvc/data", "--timeout=0s"},
		"dry run for real": {"pvc/data", "--dry-run", "--yes"},
	} {
		if out, code := call(t, to, "", args...); code != cli.ExitUsage {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, cli.ExitUsage, out)
		}
	}
	if out, code := call(t, to, "", "pvc/data"); code != cli.ExitError {
		t.Errorf("no such claim: exit code %d, want %d\n%s", code, cli.ExitError, out)
	}
}
