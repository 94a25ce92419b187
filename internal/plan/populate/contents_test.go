package populate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func TestPrimeCopiesWhatDecidesTheVolume(t *testing.T) {
	o := observed(live, population(1), waitsForConsumer, node, func(o *populate.Observed) {
		o.Claim.Labels = map[string]string{"app": "database"}
		for key, value := range map[string]string{
			"backup.example.com/plan":                          "daily",
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
			"volume.kubernetes.io/storage-provisioner":         "disk.example.com",
			"volume.beta.kubernetes.io/storage-provisioner":    "disk.example.com",
			"pv.kubernetes.io/bind-completed":                  "yes",
			v1alpha1.AnnotationSourceNamespace:                 "other",
		} {
			metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, key, value)
		}
		o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "Hello", Name: "example"}
		o.Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		o.Claim.Spec.VolumeAttributesClassName = ptr.To("gold")
	})
	step, ok := populate.Next(o).Step.(populate.CreatePrime)
	if !ok {
		t.Fatalf("want CreatePrime, got %+v", populate.Next(o))
	}
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name1,
			Labels: map[string]string{
				v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: v1alpha1.RolePrime,
				"velero.io/exclude-from-backup": "true",
			},
			Annotations: map[string]string{
				"backup.example.com/plan": "daily", selectedNode: "node-1",
				v1alpha1.AnnotationNonce: nonce, v1alpha1.AnnotationClaim: "tenant/data",
			},
			OwnerReferences: owner(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:          ptr.To("fast"),
			VolumeMode:                ptr.To(corev1.PersistentVolumeBlock),
			VolumeAttributesClassName: ptr.To("gold"),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	if diff := cmp.Diff(want, step.Prime); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWorkerIsTheRenderedPodWithIdentity(t *testing.T) {
	tolerated := corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}
	o := observed(population(1), waitsForConsumer, node, prime(primeBound, primeNode), volume(), rendered, func(o *populate.Observed) {
		o.Populator.Spec.DeadlineSeconds = ptr.To[int64](60)
		o.Rendered.Files = map[string][]byte{"index.html": []byte("hello")}
		o.Rendered.Pod.Labels = map[string]string{"mesh": "off", v1alpha1.LabelAttempt: "99"}
		o.Rendered.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		o.Rendered.Pod.Spec.Tolerations = []corev1.Toleration{{Key: "own"}}
		o.Consumers = []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(at(0))}, Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "going"}}}},
			{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tolerated, {Key: "own"}}}},
		}
	})
	step, ok := populate.Next(o).Step.(populate.CreateWorker)
	if !ok {
		t.Fatalf("want CreateWorker, got %+v", populate.Next(o))
	}
	labels := func(role string) map[string]string {
		return map[string]string{
			v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: role,
			"velero.io/exclude-from-backup": "true",
		}
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name1, Labels: labels(v1alpha1.RoleWorker),
			Annotations: map[string]string{
				v1alpha1.AnnotationNonce: nonce, v1alpha1.AnnotationClaim: "tenant/data",
				populate.AnnotationPrimeUID: "prime", populate.AnnotationReclaimPolicy: "Delete",
				populate.AnnotationSourceGeneration: "7", populate.AnnotationPopulatorGeneration: "2",
			},
			OwnerReferences: owner(),
		},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: v1alpha1.WorkerContainer, Image: "busybox"}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			ActiveDeadlineSeconds:         ptr.To[int64](60),
			Tolerations:                   []corev1.Toleration{{Key: "own"}, tolerated},
			Volumes: []corev1.Volume{
				{Name: v1alpha1.TargetVolume, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name1},
				}},
				{Name: v1alpha1.FilesVolume, VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name1}},
				}},
			},
		},
	}
	want.Labels["mesh"] = "off"
	if diff := cmp.Diff(want, step.Worker); diff != "" {
		t.Errorf("worker: -want +got:\n%s", diff)
	}
	primeOwner := owner()
	primeOwner[0].Name, primeOwner[0].UID = name1, "prime"
	files := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name1, Labels: labels(v1alpha1.RoleWorker),
			Annotations:     map[string]string{v1alpha1.AnnotationNonce: nonce, v1alpha1.AnnotationClaim: "tenant/data"},
			OwnerReferences: primeOwner,
		},
		Immutable:  ptr.To(true),
		BinaryData: map[string][]byte{"index.html": []byte("hello")},
	}
	if diff := cmp.Diff(files, step.Files); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
	record := step.Record.Status
	if record.Phase != v1alpha1.PhasePopulating || record.VolumeUID != "volume" || record.StartedAt == nil || record.Source.Generation != 7 ||
		record.Populator != "hello" || record.Source.Summary != "Hello/example" {
		t.Errorf("record: got %+v", record)
	}
	if o.Rendered.Pod.Name != "" || len(o.Rendered.Pod.Spec.Volumes) != 0 {
		t.Error("the observation was changed")
	}
}

func TestSuccessIsRecordedWithinBounds(t *testing.T) {
	said := `{"bytes":9223372036854775807,"files":3,"digest":"sha256:` + strings.Repeat("ab", 32) + `","message":"all\u001b[31m here"}`
	o := observed(population(1, recorded(1), func(st *v1alpha1.PopulationStatus) {
		st.Source = &v1alpha1.SourceRevision{Group: "hello.k8s.io", Kind: "Hello", Name: "example", Generation: 7, Summary: "Hello/example"}
	}), claimBoundTo("pv"), prime(primeBound, primeDeleting), volume(handedOver), worker(workerEnded(0, said)))
	d := populate.Next(o)
	step, ok := d.Step.(populate.WriteStatus)
	if !ok {
		t.Fatalf("want WriteStatus, got %+v", d)
	}
	st := step.Status
	st.Conditions = nil
	want := v1alpha1.PopulationStatus{
		Phase: v1alpha1.PhaseSucceeded, ObservedGeneration: 1, Populator: "hello",
		Source: &v1alpha1.SourceRevision{
			Group: "hello.k8s.io", Kind: "Hello", Name: "example", Generation: 7, Summary: "Hello/example",
			Digest: "sha256:" + strings.Repeat("ab", 32),
		},
		Progress:   &v1alpha1.Progress{Bytes: 1 << 30, TotalBytes: 1 << 30, Files: 3, Summary: "1Gi/1Gi 100%"},
		VolumeName: "pv", VolumeUID: "volume", NodeName: "node-1",
		Result: &v1alpha1.Result{
			Attempt: 1, Succeeded: true, Message: "all [31m here", ExitCode: ptr.To[int32](0),
			SourceGeneration: 7, PopulatorGeneration: 2, EndedAt: ptr.To(at(0)),
		},
		CompletedAt: ptr.To(at(0)),
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := (&populate.Event{Type: "Normal", Reason: "Populated", Message: `Volume "pv" was filled from Hello/example`}); !cmp.Equal(want, d.Event) {
		t.Errorf("event: got %+v, want %+v", d.Event, want)
	}
}

// disruption says that somebody stops a Pod, and why.
func disruption(reason, message string) func(*corev1.Pod) {
	return func(w *corev1.Pod) {
		w.Status.Conditions = append(w.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
}

func TestFailureKeepsTheWorkersLastWords(t *testing.T) {
	cases := map[string]struct {
		reason  string
		end     func(*corev1.Pod)
		want    v1alpha1.Result
		failing string
	}{
		"OwnWords": {
			reason: "A result that the worker left is taken at its word, within bounds",
			end:    workerEnded(1, `{"reason":"SourceUnreachable","message":"connection refused","unknown":1}`),
			want:   v1alpha1.Result{Reason: "SourceUnreachable", Message: `Worker "sluice-0b7e-1": connection refused`, ExitCode: ptr.To[int32](1)},
		},
		"InventedReason": {
			reason: "A worker cannot make up reasons",
			end:    workerEnded(1, `{"reason":"Populated"}`),
			want:   v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1": `, ExitCode: ptr.To[int32](1)},
		},
		"LogLine": {
			reason: "The last lines of a log are kept, without control characters",
			end:    workerEnded(3, "sh: syntax\x1b[0m error\n"),
			want:   v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" exited with code 3: sh: syntax [0m error`, ExitCode: ptr.To[int32](3)},
		},
		"Evicted": {
			reason: "A Pod that was stopped says by whom",
			end: func(w *corev1.Pod) {
				w.Status.Phase, w.Status.Reason, w.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" was stopped (Evicted): low on memory`},
		},
		"EvictedByKubelet": {
			reason: "What a worker says when it is told to end is not for good",
			end: func(w *corev1.Pod) {
				workerEnded(143, `{"reason":"SourceMissing","permanent":true}`)(w)
				w.Status.Phase, w.Status.Reason, w.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
				disruption("TerminationByKubelet", "The node was low on resource: memory.")(w)
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", ExitCode: ptr.To[int32](143),
				Message: `Worker "sluice-0b7e-1" was stopped by its node: The node was low on resource: memory.`},
		},
		"Drained": {
			reason: "A drain deletes the Pod, and says so in its condition",
			end: func(w *corev1.Pod) {
				workerRunning(time.Second)(w)
				disruption("EvictionByEvictionAPI", "Eviction API: evicting")(w)
				w.DeletionTimestamp = ptr.To(at(0))
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" was evicted, as when its node is drained: Eviction API: evicting`},
		},
		"NodeLost": {
			reason: "The container of a node that is cut off may run on, and the API shows it running",
			end: func(w *corev1.Pod) {
				workerRunning(time.Second)(w)
				disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")(w)
				w.DeletionTimestamp = ptr.To(at(0))
			},
			want: v1alpha1.Result{Reason: "WorkerFailed",
				Message: `Worker "sluice-0b7e-1" was evicted from its node, which is out of order or to be emptied: Taint manager: deleting due to NoExecute taint`},
		},
		"NodeGone": {
			reason: "Of a node that no longer exists the garbage collector deletes the Pods",
			end: func(w *corev1.Pod) {
				w.Status.Phase = corev1.PodFailed
				disruption("DeletionByPodGC", "PodGC: node no longer exists")(w)
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" was lost with its node: PodGC: node no longer exists`},
		},
		"Preempted": {
			reason: "A more important Pod needed the room",
			end: func(w *corev1.Pod) {
				disruption("PreemptionByScheduler", "")(w)
				w.DeletionTimestamp = ptr.To(at(0))
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" made room for a Pod of higher priority`},
		},
		"NewKindOfDisruption": {
			reason: "What is not known is passed on",
			end: func(w *corev1.Pod) {
				workerEnded(1, "")(w)
				disruption("Elsewhere", "moved")(w)
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" was stopped (Elsewhere): moved`, ExitCode: ptr.To[int32](1)},
		},
		"OutOfMemory": {
			reason: "The limit is what somebody has to raise",
			end: func(w *corev1.Pod) {
				workerEnded(137, `{"permanent":true}`)(w)
				w.Status.ContainerStatuses[1].State.Terminated.Reason = "OOMKilled"
				w.Spec.Containers = []corev1.Container{{Name: v1alpha1.WorkerContainer, Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				}}}
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", ExitCode: ptr.To[int32](137),
				Message: `Worker "sluice-0b7e-1" was killed (exit code 137) because it used more memory than its limit of 256Mi allows`},
		},
		"Deleted": {
			reason: "A Pod that somebody deleted says no more",
			end: func(w *corev1.Pod) {
				workerRunning(time.Second)(w)
				w.DeletionTimestamp = ptr.To(at(0))
			},
			want: v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" was deleted`},
		},
		"NeverRan": {
			reason: "A node may refuse a Pod",
			end:    func(w *corev1.Pod) { w.Status.Phase = corev1.PodFailed },
			want:   v1alpha1.Result{Reason: "WorkerFailed", Message: `Worker "sluice-0b7e-1" did not run to its end`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(tc.end))
			step, ok := populate.Next(o).Step.(populate.WriteStatus)
			if !ok {
				t.Fatalf("want WriteStatus, got %+v", populate.Next(o))
			}
			tc.want.Attempt, tc.want.Failures, tc.want.SourceGeneration, tc.want.PopulatorGeneration = 1, 1, 7, 2
			tc.want.EndedAt = ptr.To(at(0))
			if diff := cmp.Diff(&tc.want, step.Status.Result); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if step.Status.Prime != nil {
				t.Error("an attempt that ended is still recorded as running")
			}
		})
	}
}

func TestBackOffDoublesAndIsSpread(t *testing.T) {
	var last time.Duration
	for failures := int32(1); failures <= 12; failures++ {
		o := observed(population(failures, failed(failures, v1alpha1.ReasonWorkerFailed, 0)))
		d := populate.Next(o)
		base := min(10*time.Second<<(failures-1), 5*time.Minute)
		if d.RequeueAfter < base || d.RequeueAfter > base+base/5 {
			t.Errorf("after %d failures: got %s, want %s and up to a fifth more", failures, d.RequeueAfter, base)
		}
		if d.RequeueAfter == last {
			t.Errorf("after %d failures: the same wait as before, %s", failures, last)
		}
		last = d.RequeueAfter
		if again := populate.Next(o).RequeueAfter; again != d.RequeueAfter {
			t.Errorf("after %d failures: got %s, then %s", failures, d.RequeueAfter, again)
		}
	}
}

func TestFailureBeforeTheWorkerTakesDownItsSource(t *testing.T) {
	of := func(source types.UID) func(*v1alpha1.PopulationStatus) {
		return func(st *v1alpha1.PopulationStatus) {
			st.Source = &v1alpha1.SourceRevision{Group: "hello.k8s.io", Kind: "Hello", Name: "example", UID: source, Generation: 7}
		}
	}
	cases := map[string]struct {
		reason   string
		failures int32
		changes  []func(*populate.Observed)
		want     types.UID
		why      string
	}{
		"Repeated": {
			reason:   "A source that was re-created before an attempt gives no reason to do without a back-off after it",
			failures: 1, changes: []func(*populate.Observed){population(1, of("before")), prime(primeBound), volume(matched)},
			want: "source", why: populate.WhyBackOff,
		},
		"Last": {
			reason:   "Nor to go on beyond the last attempt",
			failures: 3, changes: []func(*populate.Observed){population(1, of("before"), failed(0, v1alpha1.ReasonVolumeLost, time.Minute), func(st *v1alpha1.PopulationStatus) {
				st.Result.Failures = 2
			}), prime(primeBound), volume(matched)},
			want: "source", why: populate.WhyFailed,
		},
		"Recorded": {
			reason:   "A source that was re-created while a worker read the one before is a reason to try again",
			failures: 1, changes: []func(*populate.Observed){population(1, of("before"), recorded(1)), prime(primeBound), volume(), worker(workerEnded(1, "no"))},
			want: "before", why: populate.WhyNextAttempt,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed(append(tc.changes, live)...)
			step, ok := populate.Next(o).Step.(populate.WriteStatus)
			if !ok || step.Status.Result == nil || step.Status.Source == nil {
				t.Fatalf("%s: want a result and its source, got %+v", tc.reason, populate.Next(o))
			}
			if r := step.Status.Result; r.Failures != tc.failures || step.Status.Source.UID != tc.want {
				t.Errorf("%s: got failure %d of source %q, want %d of %q", tc.reason, r.Failures, step.Status.Source.UID, tc.failures, tc.want)
			}
			o.Population.Status = step.Status
			o.Primes, o.Workers, o.Volumes = nil, nil, nil
			if d := populate.Next(o); d.Why != tc.why {
				t.Errorf("%s: then got %+v, want %q", tc.reason, d, tc.why)
			}
		})
	}
}

func TestAccessModesOfPrimeAndVolume(t *testing.T) {
	const (
		rox  = corev1.ReadOnlyMany
		rwo  = corev1.ReadWriteOnce
		rwop = corev1.ReadWriteOncePod
	)
	type modes = []corev1.PersistentVolumeAccessMode
	cases := map[string]struct {
		reason                string
		claim, prime, patched modes
	}{
		"Writable":    {"Where a worker can use the claim's modes nothing changes", modes{rwo}, modes{rwo}, nil},
		"OnePod":      {"Also where it is one Pod alone", modes{rwop}, modes{rwop}, nil},
		"ReadOnly":    {"Filled as ReadWriteOnce, handed over as asked for", modes{rox}, modes{rwo}, modes{rox}},
		"ReadOnlyToo": {"What the driver makes of both is the user's to know", modes{rwo, rox}, modes{rwo, rox}, nil},
		"NoneAtAll":   {"The API server does not let it come to this", nil, modes{rwo}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ask := func(o *populate.Observed) {
				o.Claim.Spec.AccessModes = tc.claim
				o.Populator.Spec.ReadOnlyMany = true
			}
			o := observed(live, population(1), ask)
			create, ok := populate.Next(o).Step.(populate.CreatePrime)
			if !ok || !slices.Equal(create.Prime.Spec.AccessModes, tc.prime) {
				t.Errorf("%s: got %+v, want a prime with %v", tc.reason, create.Prime, tc.prime)
			}
			o = observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(), worker(workerEnded(0, "")), ask)
			rebind, ok := populate.Next(o).Step.(populate.Rebind)
			if !ok || !slices.Equal(rebind.AccessModes, tc.patched) {
				t.Errorf("%s: got %+v, want the volume patched to %v", tc.reason, rebind, tc.patched)
			}
		})
	}
}
