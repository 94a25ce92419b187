package observe

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

var (
	testKind = schema.GroupVersionKind{Group: "hello.k8s.io", Version: "v1", Kind: "Hello"}
	testKey  = Key{Namespace: "ns", Name: "claim", UID: testClaim}
)

// world is what an Observer of a test sees.
type world struct {
	cache, live, pending []client.Object
	// failing makes live reads of a kind fail.
	failing error
	// sources are whole objects of the source kind; nil: the kind is unknown.
	sources []*unstructured.Unstructured
	reason  string
}

// fixed is a Templates that says the same to everybody.
type fixed struct{ reason string }

func (f fixed) Validate(*v1alpha1.Populator, *unstructured.Unstructured, *corev1.PersistentVolumeClaim) (reason, message string) {
	if f.reason == "" {
		return "", ""
	}
	return f.reason, "it is wrong"
}

func (f fixed) Names(_ *v1alpha1.Populator, source *unstructured.Unstructured) (objects []populate.NamedObject, reason, message string) {
	return []populate.NamedObject{{Kind: "Secret", Name: "of-" + source.GetName()}}, "", ""
}

func (f fixed) Render(_ *v1alpha1.Populator, source *unstructured.Unstructured, _ *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, attempt int32) *populate.Rendered {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"source": source.GetName()}}}
	if volume != nil {
		p.Annotations["volume"] = volume.Name
	}
	return &populate.Rendered{Attempt: attempt, Pod: p}
}

func (f fixed) Given(_ *v1alpha1.Populator, w *v1alpha1.WorkerTemplate, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume, attempt int32) *populate.Rendered {
	return &populate.Rendered{Attempt: attempt, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"image": w.Image}}}}
}

// indexer collects the indexes for fake clients, which take them at building.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, name string, values client.IndexerFunc) error {
	i.builder.WithIndex(o, name, values)
	return nil
}

func (w world) observer(t *testing.T) (*Observer, *kinds.Registry) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	build := func(objects []client.Object, index func(context.Context, client.FieldIndexer) error, failing error) client.Client {
		b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Population{})
		if err := index(t.Context(), indexer{b}); err != nil {
			t.Fatal(err)
		}
		if failing != nil {
			b.WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return failing
			}})
		}
		return b.Build()
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	var known []runtime.Object
	var metas []runtime.Object
	if w.sources != nil {
		mapper = meta.NewDefaultRESTMapper([]schema.GroupVersion{testKind.GroupVersion()})
		mapper.Add(testKind, meta.RESTScopeNamespace)
		for _, s := range w.sources {
			known = append(known, s)
			metas = append(metas, &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: s.GetAPIVersion(), Kind: s.GetKind()},
				ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUID(), Generation: s.GetGeneration(), ResourceVersion: s.GetResourceVersion()},
			})
		}
	}
	lists := map[schema.GroupVersionResource]string{{Group: testKind.Group, Version: "v1", Resource: "hellos"}: "HelloList"}
	ms := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(ms); err != nil {
		t.Fatal(err)
	}
	registry := kinds.New(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, known...),
		metadatafake.NewSimpleMetadataClient(ms, metas...), mapper, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = registry.Start(ctx) // returns nil when ctx ends
	}()
	t.Cleanup(func() { cancel(); <-done })

	memory := newTestMemory()
	return New(Config{
		Cache:     build(w.cache, AddIndexes, nil),
		Pending:   build(w.pending, AddPendingIndexes, nil),
		Live:      build(w.live, AddIndexes, w.failing),
		Kinds:     registry,
		Problems:  &Problems{},
		Memory:    memory.Memory,
		Templates: fixed{w.reason},
		Now:       func() time.Time { return memory.at },
	}), registry
}

// settle waits until a kind is readable or not.
func settle(t *testing.T, r *kinds.Registry, kind schema.GroupKind) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.State(kind).Status == kinds.Starting {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s is still %+v", kind, r.State(kind))
		}
	}
}

func claimOf(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: testClaim},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("class"),
			DataSourceRef:    &corev1.TypedObjectReference{APIGroup: ptr.To(testKind.Group), Kind: testKind.Kind, Name: "source"},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func populatorOf(name string, age time.Duration, accepted bool) *v1alpha1.Populator {
	p := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0).Add(-age))},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind:  v1alpha1.SourceKind{Group: testKind.Group, Kind: testKind.Kind},
			Validations: []v1alpha1.Validation{{Rule: "true"}},
		},
	}
	if accepted {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
	}
	return p
}

func sourceObject() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(testKind)
	u.SetNamespace("ns")
	u.SetName("source")
	u.SetUID("source-uid")
	u.SetGeneration(3)
	u.SetResourceVersion("33")
	return u
}

func temporary(name string, labelled bool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name}
	if labelled {
		m.Labels = map[string]string{v1alpha1.LabelClaimUID: string(testClaim)}
	}
	return m
}

func volumeOf(name string, ref *corev1.ObjectReference, labels map[string]string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PersistentVolumeSpec{ClaimRef: ref}}
}

func TestObserveFindsAllThatMatters(t *testing.T) {
	first, second := populate.TemporaryName(testClaim, 1), populate.TemporaryName(testClaim, 2)
	w := world{
		sources: []*unstructured.Unstructured{sourceObject()},
		cache: []client.Object{
			claimOf(),
			&v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}, Spec: v1alpha1.PopulationSpec{ClaimUID: testClaim, Attempt: 1}},
			populatorOf("younger", time.Minute, true), populatorOf("elder", time.Hour, true), populatorOf("oldest", 2*time.Hour, false),
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}},
			&corev1.PersistentVolumeClaim{ObjectMeta: temporary(first, true), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "named-by-prime"}},
			&corev1.PersistentVolumeClaim{ObjectMeta: temporary(second, false)},
			&corev1.PersistentVolumeClaim{ObjectMeta: temporary("someone", false)},
			&corev1.Pod{ObjectMeta: temporary(first, true)},
			volumeOf("of-claim", &corev1.ObjectReference{Namespace: "ns", Name: "claim"}, nil),
			volumeOf("of-lost-prime", &corev1.ObjectReference{Namespace: "ns", Name: populate.TemporaryName(testClaim, 7)}, nil),
			volumeOf("named-by-prime", nil, nil),
			volumeOf("labelled", nil, map[string]string{v1alpha1.LabelClaimUID: string(testClaim)}),
			volumeOf("unrelated", &corev1.ObjectReference{Namespace: "ns", Name: "other"}, nil),
		},
		pending: []client.Object{
			consumerPod("uses-it", "claim"), consumerPod("uses-another", "other"),
		},
	}
	ob, registry := w.observer(t)
	registry.Watch(testKind.GroupKind(), kinds.Metadata)
	settle(t, registry, testKind.GroupKind())
	o, pending, err := ob.Observe(t.Context(), testKey)
	if err != nil || pending {
		t.Fatalf("pending %t, error %v", pending, err)
	}
	got := map[string][]string{"populator": {o.Populator.Name}, "class": {o.Class.Name}, "population": {o.Population.Name}}
	for i := range o.Primes {
		got["primes"] = append(got["primes"], o.Primes[i].Name)
	}
	for i := range o.Workers {
		got["workers"] = append(got["workers"], o.Workers[i].Name)
	}
	for i := range o.Volumes {
		got["volumes"] = append(got["volumes"], o.Volumes[i].Name)
	}
	for i := range o.Consumers {
		got["consumers"] = append(got["consumers"], o.Consumers[i].Name)
	}
	want := map[string][]string{
		"populator": {"elder"}, "class": {"class"}, "population": {"claim"},
		"primes": {first, second}, "workers": {first},
		"volumes":   {"labelled", "named-by-prime", "of-claim", "of-lost-prime"},
		"consumers": {"uses-it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	wantSource := populate.Source{State: populate.SourceFound, Namespace: "ns", UID: "source-uid", Generation: 3}
	if diff := cmp.Diff(wantSource, o.Source); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func consumerPod(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
	}
}

func TestObserveSource(t *testing.T) {
	populator := populatorOf("hello", 0, true)
	elsewhere := claimOf(func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{v1alpha1.AnnotationSourceNamespace: "other"}
	})
	cases := map[string]struct {
		reason string
		world  world
		want   populate.Source
	}{
		"there": {
			world: world{cache: []client.Object{claimOf(), populator}, sources: []*unstructured.Unstructured{sourceObject()}},
			want:  populate.Source{State: populate.SourceFound, Namespace: "ns", UID: "source-uid", Generation: 3},
		},
		"invalid": {
			reason: "a rule of the Populator is broken",
			world: world{cache: []client.Object{claimOf(), populator}, reason: v1alpha1.ReasonInvalidSource,
				sources: []*unstructured.Unstructured{sourceObject()}},
			want: populate.Source{State: populate.SourceFound, Namespace: "ns", UID: "source-uid", Generation: 3,
				Invalid: "it is wrong", InvalidReason: v1alpha1.ReasonInvalidSource},
		},
		"not there yet": {
			world: world{cache: []client.Object{claimOf(), populator}, sources: []*unstructured.Unstructured{}},
			want:  populate.Source{State: populate.SourceNotFound, Namespace: "ns"},
		},
		"kind unknown": {
			reason: "the definition is not installed",
			world:  world{cache: []client.Object{claimOf(), populator}},
			want: populate.Source{State: populate.SourceKindNotReadable, Namespace: "ns",
				Detail: `look up kind "Hello.hello.k8s.io": no matches for kind "Hello" in group "hello.k8s.io"`},
		},
		"in a namespace that grants nothing": {
			world:  world{cache: []client.Object{elsewhere, populator}, sources: []*unstructured.Unstructured{sourceObject()}},
			want:   populate.Source{State: populate.SourceUnknown, Namespace: "other"},
			reason: "whether it exists is not for everybody to know",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ob, registry := tc.world.observer(t)
			registry.Watch(testKind.GroupKind(), kinds.Metadata)
			settle(t, registry, testKind.GroupKind())
			o, pending, err := ob.Observe(t.Context(), testKey)
			if err != nil || pending {
				t.Fatalf("pending %t, error %v", pending, err)
			}
			if diff := cmp.Diff(tc.want, o.Source); diff != "" {
				t.Errorf("%s: source (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDeletionIsNeverHeldUpByASource(t *testing.T) {
	going := claimOf(func(c *corev1.PersistentVolumeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"kubernetes.io/pvc-protection"}
	})
	// The kind is never watched, so its state is unknown for ever.
	ob, _ := world{cache: []client.Object{going, populatorOf("hello", 0, true)}}.observer(t)
	o, pending, err := ob.Observe(t.Context(), testKey)
	if err != nil || pending || o.Claim == nil {
		t.Errorf("a claim being deleted is %+v, pending %t, error %v", o.Claim, pending, err)
	}
	alive, _ := world{cache: []client.Object{claimOf(), populatorOf("hello", 0, true)}}.observer(t)
	if _, pending, err := alive.Observe(t.Context(), testKey); err != nil || !pending {
		t.Errorf("a claim that lives: pending %t, error %v; want it to wait for the kind", pending, err)
	}
}

func TestDeepenReadsTheServer(t *testing.T) {
	first := populate.TemporaryName(testClaim, 1)
	stale := &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}, Spec: v1alpha1.PopulationSpec{ClaimUID: testClaim, Attempt: 1}}
	w := world{
		sources: []*unstructured.Unstructured{sourceObject()},
		cache:   []client.Object{claimOf(), stale, populatorOf("hello", 0, true)},
		live: []client.Object{
			claimOf(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"live": "yes"} }), stale,
			&corev1.PersistentVolumeClaim{ObjectMeta: temporary(first, true), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}},
			&corev1.Pod{ObjectMeta: temporary(first, true)},
			volumeOf("pv", nil, nil),
		},
	}
	ob, registry := w.observer(t)
	registry.Watch(testKind.GroupKind(), kinds.Metadata)
	settle(t, registry, testKind.GroupKind())
	o, _, err := ob.Observe(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = ob.Deepen(t.Context(), o, populate.NeedLive|populate.NeedRender); err != nil {
		t.Fatal(err)
	}
	if !o.Live || o.Claim.Labels["live"] != "yes" || len(o.Primes) != 1 || len(o.Workers) != 1 || len(o.Volumes) != 1 {
		t.Errorf("live observation is %+v", o)
	}
	want := map[string]string{"source": "source", "volume": "pv"}
	if o.Rendered == nil || o.Rendered.Pod == nil {
		t.Fatalf("rendered is %+v", o.Rendered)
	}
	if diff := cmp.Diff(want, o.Rendered.Pod.Annotations); diff != "" || o.Rendered.Attempt != 1 {
		t.Errorf("rendered for attempt %d (-want +got):\n%s", o.Rendered.Attempt, diff)
	}
}

func TestClaimOfWhichOnlyTheUIDIsKnown(t *testing.T) {
	first := populate.TemporaryName(testClaim, 1)
	annotated := &corev1.PersistentVolumeClaim{ObjectMeta: temporary(first, true)}
	annotated.Annotations = map[string]string{v1alpha1.AnnotationClaim: "ns/claim"}
	cases := map[string]struct {
		reason string
		world  world
		// anywhere says that not even the namespace is known.
		anywhere bool
		want     string
	}{
		"a temporary remembers the name": {
			world:  world{cache: []client.Object{claimOf(), annotated}, live: []client.Object{claimOf(), annotated}},
			want:   "claim",
			reason: "the claim lives, nothing of it may be swept",
		},
		"the cache has not seen the claim yet": {
			world:  world{live: []client.Object{claimOf()}},
			want:   "claim",
			reason: "a volume's watch may be ahead of the claims'",
		},
		"not even the namespace is known": {
			world: world{live: []client.Object{claimOf()}}, anywhere: true,
			want:   "claim",
			reason: "a volume that is to be given back says no more than the UID",
		},
		"the claim is gone": {want: "", reason: "there is nothing to find"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ob, _ := tc.world.observer(t)
			key := Key{Namespace: "ns", UID: testClaim}
			if tc.anywhere {
				key.Namespace = ""
			}
			o, _, err := ob.Observe(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if o, err = ob.Deepen(t.Context(), o, populate.NeedLive); err != nil || !o.Live {
				t.Fatalf("live %t, error %v", o.Live, err)
			}
			got := ""
			if o.Claim != nil {
				got = o.Claim.Name
			}
			if got != tc.want {
				t.Errorf("%s: claim is %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDeepenFailsWhole(t *testing.T) {
	failure := errors.New("connection lost")
	ob, _ := world{cache: []client.Object{claimOf()}, failing: failure}.observer(t)
	o, err := ob.Deepen(t.Context(), populate.Observed{Namespace: "ns", Name: "claim", ClaimUID: testClaim}, populate.NeedLive)
	if !errors.Is(err, failure) || o.Live {
		t.Errorf("error is %v, live %t; half an observation must not pass for a live one", err, o.Live)
	}
}

func TestClaimUIDFromName(t *testing.T) {
	for name, want := range map[string]string{
		populate.TemporaryName("0b1c-22", 3): "0b1c-22",
		"sluice-":                            "", "sluice-x": "", "claim": "", "sluice--1": "",
	} {
		if got := ClaimUIDFromName(name); string(got) != want {
			t.Errorf("%q is of claim %q, want %q", name, got, want)
		}
	}
}

func TestSettledClaimsAreTrimmed(t *testing.T) {
	c := claimOf(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pv"
		c.Labels = map[string]string{"app": "x", v1alpha1.LabelClaimUID: "u"}
		c.Annotations = map[string]string{annotationBindCompleted: "yes", "big": "text", annotationLastApplied: "{}"}
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Unused"}}
		c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	})
	trimmed, err := trimClaim(c)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := trimmed.(*corev1.PersistentVolumeClaim)
	if fmt.Sprint(got.Annotations, got.Labels) != "map[pv.kubernetes.io/bind-completed:yes] map[sluice.dev/claim-uid:u]" ||
		got.Status.Conditions != nil || got.ManagedFields != nil || got.Spec.DataSourceRef == nil {
		t.Errorf("got %+v", got)
	}
	waiting := claimOf(func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"copied": "to the prime"} })
	if _, err := trimClaim(waiting); err != nil || waiting.Annotations["copied"] == "" {
		t.Errorf("a claim that waits lost its annotations: %v, %v", waiting.Annotations, err)
	}
}
