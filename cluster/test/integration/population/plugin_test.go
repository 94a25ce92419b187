package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
	sdk "github.com/sluice-dev/sluice/populator"
)

func TestPluginFills(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	served := s.populator(t, nil, filledBy(where))
	if got := served.Status.Plugin; got == nil || got.Name != "storage.vendor.example" || !slices.Contains(got.Capabilities, v1alpha1.PluginFills) {
		t.Errorf("the Populator says of its plugin %+v, want its name and that it fills", got)
	}
	s.source(t)
	for name, class := range map[string]string{"immediate": simulate.ClassImmediate, "waiting": simulate.ClassWait} {
		claim := s.claim(name, class)
		create(t, claim)
		if class == simulate.ClassWait {
			create(t, consumer(s.namespace, name))
		}
		volume := bound(t, claim, 40*time.Second)
		record := succeeded(t, claim, soon)
		clean(t, s.namespace, soon)
		jobs := storage.of(s.namespace, name)
		if len(jobs) != 1 || jobs[0].starts != 1 || jobs[0].handle != volume.Spec.CSI.VolumeHandle || !jobs[0].cleaned || !jobs[0].handedOver {
			t.Errorf("%s: the storage has jobs %+v, want one that filled volume %q and was cleaned up after it was handed over", name, jobs, volume.Name)
		}
		if record.Spec.Attempt != 1 || record.Status.Source == nil || record.Status.Source.Digest != digest {
			t.Errorf("%s: attempt %d filled from %+v, want the first and the digest", name, record.Spec.Attempt, record.Status.Source)
		}
		if got := warningsOn(t, claim); len(got) > 0 {
			t.Errorf("%s: the claim has events %q, want no Warning", name, got)
		}
	}
}

func TestPluginShowsProgress(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	storage.held = true
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 30*time.Second, "the storage's figures are shown", func(ctx context.Context) error {
		record := &v1alpha1.Population{}
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), record); err != nil {
			return err
		}
		if got := record.Status.Progress; got == nil || got.Bytes != 1<<20 || got.TotalBytes != 4<<20 || !strings.Contains(describe(ctx, claim), "copying") {
			return fmt.Errorf("progress is %+v, %s", got, describe(ctx, claim))
		}
		return nil
	})
	storage.change(func(v *vendorStorage) { v.held = false })
	bound(t, claim, soon)
	clean(t, s.namespace, soon)
}

// TestPluginComputesWorker has values in the worker that must arrive as they are.
func TestPluginComputesWorker(t *testing.T) {
	s := shared(t)
	const text = "${source.spec.fileName} $(HOME) $$"
	p, where := beside(t, s, sdk.Plugin[greeting]{
		Name: "worker.vendor.example", Kinds: []sdk.Kind{s.kind.GroupKind()},
		Worker: sdk.WorkerFunc[greeting](func(_ context.Context, r sdk.Request[greeting]) (*v1alpha1.WorkerTemplate, error) {
			return &v1alpha1.WorkerTemplate{
				Annotations: runs(3 * time.Second), Image: "busybox", Command: []string{"true"},
				Env: []corev1.EnvVar{{Name: "TEXT", Value: text}, {Name: "NAME", Value: r.Source.Object.Spec.FileName}},
			}, nil
		}),
		Primer: sdk.PrimerFunc[greeting](func(context.Context, sdk.Source[greeting], sdk.Claim) (sdk.Prime, error) {
			return sdk.Prime{Labels: map[string]string{"vendor.example/tier": "gold"}}, nil
		}),
	})
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	worker := s.worker(t)
	env := map[string]string{}
	for _, e := range worker.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	if env["TEXT"] != strings.ReplaceAll(text, "$", "$$") || env["NAME"] != "example.txt" {
		t.Errorf("the worker has environment %q, want the plugin's with every $ doubled", env)
	}
	prime := &corev1.PersistentVolumeClaim{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: worker.Name}, prime); err != nil {
		t.Fatal(err)
	}
	if prime.Labels["vendor.example/tier"] != "gold" || slices.Contains(prime.Finalizers, v1alpha1.FinalizerPlugin) {
		t.Errorf("the prime has labels %v and finalizers %q, want the plugin's label, and not to wait for a plugin that fills nothing", prime.Labels, prime.Finalizers)
	}
	bound(t, claim, soon)
	clean(t, s.namespace, soon)
	if got := warningsOn(t, claim); len(got) > 0 {
		t.Errorf("the claim has events %q, want no Warning", got)
	}
}

func TestPluginRefusesSource(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	plugin := storage.plugin(s)
	plugin.Validator = sdk.ValidatorFunc[greeting](func(_ context.Context, source sdk.Source[greeting]) error {
		if source.Object.Spec.FileContents != "fine" {
			return errors.New("spec.fileContents must be fine")
		}
		return nil
	})
	p, where := beside(t, s, plugin)
	p.start(t)
	s.populator(t, nil, filledBy(where))
	source := s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonInvalidSource, soon)
	if got := describe(t.Context(), claim); !strings.Contains(got, "spec.fileContents must be fine") || !strings.Contains(got, "attempt 0") {
		t.Errorf("the population says %q, want the plugin's words, and nothing begun", got)
	}
	if err := unstructured.SetNestedField(source.Object, "fine", "spec", "fileContents"); err != nil {
		t.Fatal(err)
	}
	if err := kube.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, soon)
}

func TestPluginFailsForGood(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	storage.failure = sdk.Permanent(sdk.SourceMissing.Errorf("there is no backup of that day"))
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	record := waits(t, claim, v1alpha1.ReasonSourceMissing, 30*time.Second)
	if got := describe(t.Context(), claim); record.Status.Phase != v1alpha1.PhaseFailed || !strings.Contains(got, "no backup of that day") {
		t.Errorf("the population says %q, want that it failed for good in the plugin's words", got)
	}
	clean(t, s.namespace, soon)
	eventually(t, soon, "the volume is gone", noVolumes(s.namespace))
	if jobs := storage.of(s.namespace, "claim"); len(jobs) != 1 || !jobs[0].cleaned || jobs[0].handedOver {
		t.Errorf("the storage has jobs %+v, want one that was cleaned up and not handed over", jobs)
	}
	told(t, claim, "Warning "+v1alpha1.ReasonSourceMissing)
	if got := warningsOn(t, claim); !slices.Equal(got, []string{"Warning " + v1alpha1.ReasonSourceMissing}) {
		t.Errorf("the claim has events %q, want one Warning", got)
	}
}

// TestPluginThatIsNotThere heals without anybody touching a claim.
func TestPluginThatIsNotThere(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	p, where := beside(t, s, storage.plugin(s))
	served := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec:       v1alpha1.PopulatorSpec{SourceKind: v1alpha1.SourceKind{Group: s.kind.Group, Kind: s.kind.Kind}, Plugin: where},
	}
	create(t, served)
	t.Cleanup(func() { gone(t, served) })
	eventually(t, soon, "the Populator says that its plugin is away", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(served), served); err != nil {
			return err
		}
		c := meta.FindStatusCondition(served.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonPluginUnavailable || !strings.Contains(c.Message, where.Socket) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	waits(t, claim, v1alpha1.ReasonPluginUnavailable, soon)
	told(t, claim, "Warning "+v1alpha1.ReasonPluginUnavailable)
	if got := warningsOn(t, claim); !slices.Equal(got, []string{"Warning " + v1alpha1.ReasonPluginUnavailable}) {
		t.Errorf("the claim has events %q, want one Warning", got)
	}
	p.start(t)
	accept(t, served)
	bound(t, claim, 30*time.Second)
	if record := succeeded(t, claim, soon); record.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want none to be lost", record.Spec.Attempt)
	}
	clean(t, s.namespace, soon)
}

// TestPluginEndsInTheMiddle of a fill: the storage goes on, and so does the
// attempt when the plugin is back.
func TestPluginEndsInTheMiddle(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	storage.held = true
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 30*time.Second, "the storage fills", storage.runs(s.namespace, claim.Name))
	p.stop()
	waits(t, claim, v1alpha1.ReasonPluginUnavailable, soon)
	storage.change(func(v *vendorStorage) { v.held = false })
	p.start(t)
	bound(t, claim, 30*time.Second)
	clean(t, s.namespace, soon)
	if jobs := storage.of(s.namespace, claim.Name); len(jobs) != 1 || jobs[0].starts != 1 {
		t.Errorf("the storage has jobs %+v, want one that was started once", jobs)
	}
	if record := succeeded(t, claim, soon); record.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts, want none to be lost", record.Spec.Attempt)
	}
}

// TestClaimDeletedWhileAPluginFills keeps the volume until nothing writes to it
// any more.
func TestClaimDeletedWhileAPluginFills(t *testing.T) {
	s := shared(t)
	storage := newStorage()
	storage.held, storage.stuck = true, true
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 30*time.Second, "the storage fills", storage.runs(s.namespace, claim.Name))
	gone(t, claim)
	eventually(t, soon, "the storage is told to end, twice", func(context.Context) error {
		if jobs := storage.of(s.namespace, "claim"); len(jobs) != 1 || jobs[0].cleanups < 2 {
			return fmt.Errorf("jobs are %+v", jobs)
		}
		return nil
	})
	var primes corev1.PersistentVolumeClaimList
	if err := kube.List(t.Context(), &primes, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelRole}); err != nil {
		t.Fatal(err)
	}
	if len(primes.Items) != 1 || !slices.Contains(primes.Items[0].Finalizers, v1alpha1.FinalizerPlugin) {
		t.Fatalf("primes are %+v, want one that waits for the plugin", primes.Items)
	}
	storage.change(func(v *vendorStorage) { v.stuck = false })
	clean(t, s.namespace, soon)
	eventually(t, soon, "the volume is gone", noVolumes(s.namespace))
	if jobs := storage.of(s.namespace, "claim"); len(jobs) != 1 || jobs[0].handedOver {
		t.Errorf("the storage has jobs %+v, want one that was not handed over", jobs)
	}
}

func TestManagerKilledWhileAPluginFills(t *testing.T) {
	manager := startManager(t, "--lease-duration=3s")
	s := alone(t)
	storage := newStorage()
	storage.held = true
	p, where := beside(t, s, storage.plugin(s))
	p.start(t)
	s.populator(t, nil, filledBy(where))
	s.source(t)
	claim := s.claim("claim", simulate.ClassImmediate)
	create(t, claim)
	eventually(t, 30*time.Second, "the storage fills", storage.runs(s.namespace, claim.Name))
	manager.kill(t)
	storage.change(func(v *vendorStorage) { v.held = false })
	startManager(t, "--lease-duration=3s")
	bound(t, claim, 40*time.Second)
	clean(t, s.namespace, soon)
	if jobs := storage.of(s.namespace, claim.Name); len(jobs) != 1 || jobs[0].starts != 1 || !jobs[0].handedOver {
		t.Errorf("the storage has jobs %+v, want one that was started once and handed over", jobs)
	}
	if got := warningsOn(t, claim); len(got) > 0 {
		t.Errorf("the claim has events %q, want no Warning", got)
	}
}
