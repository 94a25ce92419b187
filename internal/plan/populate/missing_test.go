package populate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// naming says that the source names a Secret for its worker.
func naming(o *populate.Observed) {
	o.Populator.Spec.Worker.SourceVolumes = []v1alpha1.SourceVolume{{Name: "credentials", MountPath: "/sources/credentials", Secret: "source.spec.?secretRef.?name"}}
	objects := []populate.NamedObject{{Kind: "Secret", Name: "token"}}
	o.Source.Objects = objects
	if o.Rendered != nil {
		o.Rendered.Objects = objects
	}
}

// mounting is a worker that mounts what its source names.
func mounting(age time.Duration) func(*corev1.Pod) {
	return func(w *corev1.Pod) {
		w.CreationTimestamp = at(age)
		w.Spec.Volumes = []corev1.Volume{
			{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		}
	}
}

func failedMount(message string) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.WorkerProblem = populate.Problem{Reason: "FailedMount", Message: message, At: now}
	}
}

func elsewhere(o *populate.Observed) { o.Source.Namespace, o.Source.Granted = "vault", true }

func sourceEdited(o *populate.Observed) { o.Source.Generation++ }

func TestNextSourceVolumes(t *testing.T) {
	noSecret := failedMount(`MountVolume.SetUp failed for volume "credentials" : secret "token" not found`)
	attempt := func(changes ...func(*populate.Observed)) populate.Observed {
		return observed(append([]func(*populate.Observed){live, population(1, recorded(1)), prime(primeBound), volume(), naming}, changes...)...)
	}
	run(t, map[string]nextCase{
		"Here": {
			reason: "A Secret of the worker's own namespace is mounted",
			o:      observed(live, population(1), prime(primeBound), volume(), rendered, naming),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"Elsewhere": {
			reason: "The claim's namespace may have a Secret of that name, which is somebody else's: nothing is begun",
			o:      observed(live, population(0), elsewhere, naming, placed(v1alpha1.PlacementClaim)),
			want:   outline{Step: "status Waiting InvalidSource", Event: "Warning InvalidSource", Again: 5 * time.Minute, Why: populate.WhyWaiting},
		},
		"ElsewhereOnlyLive": {
			reason: "Nor when only the source that was read for rendering names one",
			o: observed(live, population(1), prime(primeBound), volume(), rendered, elsewhere, naming, func(o *populate.Observed) {
				o.Source.Objects = nil
			}),
			want: outline{Step: "status Waiting InvalidSource", Event: "Warning InvalidSource", Again: 30 * time.Second, Why: populate.WhyWaiting},
		},
		"ElsewhereNothingNamed": {
			reason: "A source of another namespace that names nothing is filled where the claim is",
			o:      observed(live, population(1), prime(primeBound), volume(), rendered, elsewhere),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"MissingYoung": {
			reason: "The Secret may come with the same manifest",
			o:      attempt(worker(mounting(4*time.Second)), noSecret),
			want:   outline{Again: 6 * time.Second, Why: populate.WhyWorkerPending},
		},
		"Missing": {
			reason: "A Secret that does not exist is named, and waited for",
			o:      attempt(worker(mounting(10*time.Second)), noSecret),
			want:   outline{Step: "status Populating SourceMissing", Event: "Warning SourceMissing", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"MissingOfTemplate": {
			reason: "So is what the template itself mounts",
			o:      attempt(worker(mounting(10*time.Second)), failedMount(`MountVolume.SetUp failed for volume "own" : configmap "settings" not found`)),
			want:   outline{Step: "status Populating SourceMissing", Event: "Warning SourceMissing", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"MissingOther": {
			reason: "What the worker does not mount is no reason",
			o:      attempt(worker(mounting(10*time.Second)), failedMount(`secret "token2" not found`)),
			want:   outline{Step: "status Populating Populating", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"MissingEdited": {
			reason: "A source that names another Secret since then gets another worker",
			o:      attempt(worker(mounting(time.Minute)), noSecret, sourceEdited),
			want:   outline{Step: "status Waiting SourceMissing", Event: "Warning SourceMissing", Why: populate.WhyWorkerOutdated},
		},
		"Created": {
			reason: "When the Secret is there the kubelet starts the worker",
			o:      attempt(worker(mounting(time.Minute), workerRunning(time.Minute)), noSecret),
			want:   outline{Step: "status Populating PopulationStarted", Event: "Normal PopulationStarted", Why: populate.WhyWorkerRunning},
		},
	})
	d := populate.Next(attempt(worker(mounting(time.Minute)), noSecret))
	for _, word := range []string{`Secret "token"`, `namespace "tenant"`, `Hello.hello.k8s.io "example"`, "create it"} {
		if d.Event == nil || !strings.Contains(d.Event.Message, word) {
			t.Errorf("event = %+v, want one that says %s", d.Event, word)
		}
	}
}
