package explain

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
	"github.com/sluice-dev/sluice/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

const claimUID = types.UID("6f9b")

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// world is a cluster around one claim.
type world struct {
	claim   *corev1.PersistentVolumeClaim
	pop     *v1alpha1.Population
	objects []client.Object
	// forbidden are resources, by Go type, that may not be read.
	forbidden []client.Object
	// foreign: the cluster does not know Sluice's kinds.
	foreign bool
	// lost: volume pv-1 does not exist.
	lost bool
}

func newWorld() *world {
	return &world{claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: claimUID, CreationTimestamp: ago(5 * time.Minute)},
		Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{
			APIGroup: ptr.To("sluice.dev"), Kind: "InlineSource", Name: "greeting"}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}}
}

func (w *world) with(o ...client.Object) *world {
	w.objects = append(w.objects, o...)
	return w
}

// served adds an accepted Populator and the source.
func (w *world) served() *world {
	return w.with(populator("True", v1alpha1.ReasonAccepted, ""),
		&v1alpha1.InlineSource{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "greeting", UID: "source", Generation: 1}})
}

func populator(status metav1.ConditionStatus, reason, message string) *v1alpha1.Populator {
	return &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: "inline", UID: "populator"},
		Spec:       v1alpha1.PopulatorSpec{SourceKind: v1alpha1.SourceKind{Group: "sluice.dev", Kind: "InlineSource"}},
		Status: v1alpha1.PopulatorStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message}}},
	}
}

// at adds the Population in some phase.
func (w *world) at(phase v1alpha1.Phase, attempt int32, reason, message string) *world {
	w.pop = &v1alpha1.Population{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "population"},
		Spec:       v1alpha1.PopulationSpec{ClaimUID: claimUID, Attempt: attempt, Nonce: "12345678"},
		Status: v1alpha1.PopulationStatus{
			Phase: phase, Populator: "inline",
			Source:     &v1alpha1.SourceRevision{Group: "sluice.dev", Kind: "InlineSource", Namespace: "shop", Name: "greeting", UID: "source", Generation: 1, Summary: "InlineSource/greeting"},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}},
		},
	}
	if attempt > 0 {
		w.pop.Status.StartedAt = ptr.To(ago(4 * time.Minute))
	}
	return w
}

func (w *world) change(f func(*corev1.PersistentVolumeClaim, *v1alpha1.PopulationStatus)) *world {
	st := &v1alpha1.PopulationStatus{}
	if w.pop != nil {
		st = &w.pop.Status
	}
	f(w.claim, st)
	return w
}

func (w *world) forbid(o ...client.Object) *world {
	w.forbidden = append(w.forbidden, o...)
	return w
}

func eventOf(kind, name, uid, reason, message, level string, age time.Duration) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: strings.ToLower(kind + "." + name + "." + reason + "." + uid)},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name, UID: types.UID(uid)},
		Reason:         reason, Message: message, Type: level, LastTimestamp: ago(age),
	}
}

func temporaryMeta(n string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "sluice-6f9b-" + n, UID: types.UID("temporary-" + n),
		Labels: map[string]string{v1alpha1.LabelClaimUID: string(claimUID), v1alpha1.LabelAttempt: n}}
}

func prime(n string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: temporaryMeta(n),
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + n},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
}

// held is a prime that goes when its plugin has cleaned up.
func held(n string, going bool) *corev1.PersistentVolumeClaim {
	p := prime(n)
	p.Finalizers = []string{v1alpha1.FinalizerPlugin}
	if going {
		p.DeletionTimestamp = ptr.To(ago(10 * time.Second))
	}
	return p
}

func worker() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: temporaryMeta("1"), Spec: corev1.PodSpec{NodeName: "node-a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

// client makes the fake cluster.
func (w *world) client() client.Client {
	objects := append([]client.Object{w.claim}, w.objects...)
	if w.pop != nil {
		objects = append(objects, w.pop)
	}
	if !w.lost {
		objects = append(objects, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}})
	}
	refuse := func(o any) error {
		kind := strings.TrimSuffix(reflect.TypeOf(o).Elem().Name(), "List")
		if w.foreign && strings.HasPrefix(kind, "Popula") {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "sluice.dev", Kind: kind}}
		}
		if slices.ContainsFunc(w.forbidden, func(f client.Object) bool { return reflect.TypeOf(f).Elem().Name() == kind }) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no rule allows it"))
		}
		return nil
	}
	kinds := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	kinds.Add(v1alpha1.GroupVersion.WithKind("InlineSource"), meta.RESTScopeNamespace)
	return fake.NewClientBuilder().WithScheme(cli.Scheme()).WithRESTMapper(kinds).WithObjects(objects...).
		WithIndex(&corev1.Event{}, eventsByName, func(o client.Object) []string {
			if e, ok := o.(*corev1.Event); ok {
				return []string{e.InvolvedObject.Name}
			}
			return nil
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := refuse(o); err != nil {
					return err
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if err := refuse(l); err != nil {
					return err
				}
				return c.List(ctx, l, opts...)
			},
		}).Build()
}

// call runs the verb as main would.
func call(t *testing.T, w *world, args ...string) (out string, code int) {
	t.Helper()
	var buf bytes.Buffer
	cmd := New(cli.IOStreams{Out: &buf, Err: &buf}, func() (client.Client, string, error) { return w.client(), "shop", nil }, func() time.Time { return now })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if code = cli.ExitCode(err); code == cli.ExitError || code == cli.ExitUsage {
		buf.WriteString(err.Error() + "\n")
	}
	return buf.String(), code
}

func TestExplain(t *testing.T) {
	failed := &v1alpha1.Result{Attempt: 2, Reason: v1alpha1.ReasonDigestMismatch, Message: "sha256 is \x1b[31mabc\nnot def", Permanent: true, ExitCode: ptr.To[int32](3), EndedAt: ptr.To(ago(time.Minute))}
	again := &v1alpha1.Result{Attempt: 1, Reason: v1alpha1.ReasonSourceUnreachable, Message: "connection refused", EndedAt: ptr.To(ago(8 * time.Second)), Failures: 1}
	for name, tc := range map[string]struct {
		reason string
		world  *world
		args   []string
		code   int
	}{
		"settled": {
			reason: "a settled claim shows where its data came from",
			world: newWorld().served().at(v1alpha1.PhaseSucceeded, 1, v1alpha1.ReasonPopulated, "").with(
				eventOf("PersistentVolumeClaim", "data", string(claimUID), "Populated", "Filled from InlineSource/greeting", "Normal", 3*time.Minute),
				eventOf("PersistentVolumeClaim", "data", "older", "Populated", "Of an earlier claim of this name", "Normal", time.Hour)).
				change(func(c *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					c.Spec.VolumeName, st.VolumeName, c.Status.Phase = "pv-1", "pv-1", corev1.ClaimBound
					st.CompletedAt, st.NodeName, st.Source.Digest = ptr.To(ago(3*time.Minute)), "node-a", "sha256:00ff"
				}),
		},
		"settled-json": {
			reason: "programs get the same story",
			args:   []string{"-o", "json"},
			world: newWorld().served().at(v1alpha1.PhaseSucceeded, 1, v1alpha1.ReasonPopulated, "").
				change(func(c *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					c.Spec.VolumeName, st.VolumeName = "pv-1", "pv-1"
				}),
		},
		"source-changed": {
			reason: "what changed in the source since is said, as claims do not follow it",
			world: newWorld().with(populator("True", v1alpha1.ReasonAccepted, ""),
				&v1alpha1.InlineSource{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "greeting", UID: "source", Generation: 4}}).
				at(v1alpha1.PhaseSucceeded, 1, v1alpha1.ReasonPopulated, "").
				change(func(c *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					c.Spec.VolumeName, st.VolumeName = "pv-1", "pv-1"
				}),
		},
		"volume-gone": {
			reason: "a volume that someone deleted behind a settled claim is missed",
			world: func() *world {
				w := newWorld().served().at(v1alpha1.PhaseSucceeded, 1, v1alpha1.ReasonPopulated, "").
					change(func(c *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
						c.Spec.VolumeName, st.VolumeName = "pv-1", "pv-1"
					})
				w.lost = true
				return w
			}(),
		},
		"image-missing": {
			reason: "a worker that does not start says why",
			code:   cli.ExitAct,
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonWorkerImageFailed, "Image \"nowhere/none\" cannot be pulled").
				with(prime("1"), func() *corev1.Pod {
					w := worker()
					w.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
						State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}
					return w
				}()),
		},
		"populating": {
			reason: "a running worker shows progress, and what is there",
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonPopulationStarted, "Worker runs").
				with(prime("1"), worker(),
					eventOf("Pod", "sluice-6f9b-1", "temporary-1", "Pulled", "Image pulled", "Normal", 2*time.Minute),
					eventOf("PersistentVolumeClaim", "sluice-6f9b-1", "temporary-1", "ProvisioningSucceeded", "Provisioned pv-1", "Normal", 3*time.Minute)).
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.VolumeName, st.Prime = "pv-1", &v1alpha1.TemporaryReference{Namespace: "shop", Name: "sluice-6f9b-1"}
					st.Progress = &v1alpha1.Progress{Bytes: 512 << 20, TotalBytes: 2 << 30, Files: 12, BytesPerSecond: 64 << 20}
				}),
		},
		"plugin-fills": {
			reason: "a plugin fills without a worker",
			world: newWorld().served().at(v1alpha1.PhasePopulating, 2, v1alpha1.ReasonPopulationStarted, "The plugin fills the volume: copying").
				with(held("1", true), held("2", false)).
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.VolumeName, st.Prime = "pv-1", &v1alpha1.TemporaryReference{Namespace: "shop", Name: "sluice-6f9b-2"}
					st.Fill = &v1alpha1.PluginFill{ID: "temporary-2", Populator: "inline"}
					st.Progress = &v1alpha1.Progress{Bytes: 1 << 30, TotalBytes: 2 << 30}
				}),
		},
		"plugin-silent": {
			reason: "a plugin that fills and says nothing is somebody's to look at",
			code:   cli.ExitAct,
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonPluginUnavailable, "No answer from the plugin").
				with(held("1", false)).
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.VolumeName, st.Prime = "pv-1", &v1alpha1.TemporaryReference{Namespace: "shop", Name: "sluice-6f9b-1"}
					st.Fill = &v1alpha1.PluginFill{ID: "temporary-1", Populator: "inline"}
				}),
		},
		"standing-still": {
			reason: "figures that have not changed for a while say since when",
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonPopulationStarted, "Worker runs").
				with(prime("1"), worker()).
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.VolumeName, st.Prime = "pv-1", &v1alpha1.TemporaryReference{Namespace: "shop", Name: "sluice-6f9b-1"}
					st.Progress = &v1alpha1.Progress{Bytes: 512 << 20, TotalBytes: 2 << 30, Files: 12, UpdatedAt: &metav1.Time{Time: now.Add(-time.Minute)}}
				}),
		},
		"temporary-deleted": {
			reason: "a prime that someone deleted is missed, and its events are still told",
			world: newWorld().served().at(v1alpha1.PhaseProvisioning, 2, v1alpha1.ReasonProvisioning, "Prime waits for its volume").
				with(eventOf("PersistentVolumeClaim", "sluice-6f9b-1", "temporary-1", "ProvisioningFailed", "no space in pool", "Warning", 2*time.Minute)).
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.Prime = &v1alpha1.TemporaryReference{Namespace: "shop", Name: "sluice-6f9b-2"}
				}),
		},
		"waiting-for-consumer": {
			reason: "waiting for a Pod is on its way",
			world:  newWorld().served().at(v1alpha1.PhaseWaiting, 0, v1alpha1.ReasonWaitingForConsumer, "No Pod uses the claim yet"),
		},
		"source-not-found": {
			reason: "a source that is missing is someone's to create",
			code:   cli.ExitAct,
			world: newWorld().with(populator("True", v1alpha1.ReasonAccepted, "")).
				at(v1alpha1.PhaseWaiting, 0, v1alpha1.ReasonSourceNotFound, "InlineSource \"greeting\" does not exist yet").
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) {
					st.Source.UID, st.Source.Generation = "", 0
				}),
		},
		"retrying": {
			reason: "a failed attempt that is repeated needs nobody",
			world: newWorld().served().at(v1alpha1.PhaseWaiting, 1, v1alpha1.ReasonSourceUnreachable, "Attempt 1 failed and will be repeated: connection refused").
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) { st.Result = again }),
		},
		"failed": {
			reason: "a worker's last words cannot write to the terminal",
			code:   cli.ExitAct,
			world: newWorld().served().at(v1alpha1.PhaseFailed, 2, v1alpha1.ReasonDigestMismatch, "Attempt 2 failed for good").
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) { st.Result = failed }),
		},
		"no-source": {
			reason: "a plain claim is none of Sluice's",
			world:  newWorld().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) { c.Spec.DataSourceRef = nil }),
		},
		"snapshot": {
			reason: "snapshots are the driver's",
			world: newWorld().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(snapshotGroup), Kind: "VolumeSnapshot", Name: "s"}
			}),
		},
		"bound-otherwise": {
			reason: "a claim bound without Sluice is left alone",
			world: newWorld().served().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
				c.Spec.VolumeName, c.Status.Phase = "theirs", corev1.ClaimBound
			}),
		},
		"lost": {
			reason: "a Lost claim has no data any more",
			code:   cli.ExitAct,
			world: newWorld().served().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
				c.Spec.VolumeName, c.Status.Phase = "pv-1", corev1.ClaimLost
			}),
		},
		"unserved": {
			reason: "nobody serves the kind",
			code:   cli.ExitAct,
			world:  newWorld(),
		},
		"served-elsewhere": {
			reason: "another controller registered the kind",
			world: newWorld().with(&v1beta1.VolumePopulator{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
				SourceKind: metav1.GroupKind{Group: "sluice.dev", Kind: "InlineSource"}}),
		},
		"unaccepted": {
			reason: "a Populator with a mistake says which",
			code:   cli.ExitAct,
			world:  newWorld().with(populator("False", v1alpha1.ReasonTemplateInvalid, "spec.worker.env[0].value: undeclared reference")),
		},
		"ignored": {
			reason: "a labelled namespace is left alone",
			code:   cli.ExitAct,
			world: newWorld().served().with(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Labels: map[string]string{v1alpha1.LabelIgnore: "true"}}}),
		},
		"not-installed": {
			reason: "a cluster without Sluice",
			code:   cli.ExitAct,
			world:  &world{claim: newWorld().claim, foreign: true},
		},
		"new": {
			reason: "the manager gets a while",
			world: newWorld().served().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
				c.CreationTimestamp = ago(5 * time.Second)
			}),
		},
		"manager-away": {
			reason: "an old claim without a record means that no manager runs",
			code:   cli.ExitAct,
			world:  newWorld().served(),
		},
		"deleted-and-held": {
			reason: "a deleted claim that our finalizer holds for long can be released",
			code:   cli.ExitAct,
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonPopulating, "").with(worker()).
				change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
					c.DeletionTimestamp, c.Finalizers = ptr.To(ago(10*time.Minute)), []string{v1alpha1.FinalizerPopulation}
				}),
		},
		"deleted-in-use": {
			reason: "Kubernetes waits for the Pods",
			world: newWorld().change(func(c *corev1.PersistentVolumeClaim, _ *v1alpha1.PopulationStatus) {
				c.DeletionTimestamp, c.Finalizers = ptr.To(ago(time.Minute)), []string{"kubernetes.io/pvc-protection"}
			}),
		},
		"impostor": {
			reason: "a Population of an earlier claim tells nothing about this one",
			code:   cli.ExitAct,
			world: func() *world {
				w := newWorld().served().at(v1alpha1.PhaseSucceeded, 1, v1alpha1.ReasonPopulated, "")
				w.pop.Spec.ClaimUID = "older"
				return w
			}(),
		},
		"missing-rights": {
			reason: "what may not be read is named and the rest is told",
			world: newWorld().served().at(v1alpha1.PhasePopulating, 1, v1alpha1.ReasonPopulating, "").
				change(func(_ *corev1.PersistentVolumeClaim, st *v1alpha1.PopulationStatus) { st.VolumeName = "pv-1" }).
				forbid(&v1alpha1.Populator{}, &corev1.PersistentVolume{}, &corev1.Pod{}, &corev1.Event{}),
		},
		"record-forbidden": {
			reason: "without the record, the events are all there is",
			world:  newWorld().served().forbid(&v1alpha1.Population{}),
		},
		"claim-forbidden": {
			reason: "without the claim there is no story; the right is named",
			code:   cli.ExitError,
			world:  newWorld().forbid(&corev1.PersistentVolumeClaim{}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, code := call(t, tc.world, append([]string{"pvc/data"}, tc.args...)...)
			if code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.reason, code, tc.code, got)
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

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"no claim":       {},
		"another kind":   {"pod/data"},
		"no kind":        {"data"},
		"no name":        {"pvc/"},
		"three":          {"pvc", "data", "more"},
		"unknown format": {"pvc/data", "-o", "xml"},
	} {
		if out, code := call(t, newWorld(), args...); code != cli.ExitUsage {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, cli.ExitUsage, out)
		}
	}
	if out, code := call(t, newWorld().served(), "pvc", "data"); code != cli.ExitAct {
		t.Errorf("two words: exit code %d, want %d\n%s", code, cli.ExitAct, out)
	}
	if out, code := call(t, newWorld(), "pvc/other"); code != cli.ExitError || !strings.Contains(out, `read claim "shop/other"`) {
		t.Errorf("no such claim: exit code %d, want %d\n%s", code, cli.ExitError, out)
	}
}
