package populate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func immediately(o *populate.Observed) {
	metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, v1alpha1.AnnotationPopulate, v1alpha1.PopulateImmediately)
}

// scout is the scout of attempt 1, without a node.
func scout(changes ...func(*corev1.Pod)) func(*populate.Observed) {
	return func(o *populate.Observed) {
		s := corev1.Pod{ObjectMeta: temporary("1", v1alpha1.RoleScout)}
		s.Name = populate.ScoutName(uid, 1)
		s.Status.Phase = corev1.PodPending
		for _, change := range changes {
			change(&s)
		}
		o.Workers = append(o.Workers, s)
	}
}

func podDeleting(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(at(ago)) }
}

func TestNextScouts(t *testing.T) {
	const scout1 = "sluice-0b7e-scout1"
	run(t, map[string]nextCase{
		"NoConsumerNeeded": {
			reason: "A claim that is to be filled at once waits for no consumer",
			o:      observed(live, waitsForConsumer, immediately),
			want:   outline{Step: "create Population at 1", Why: populate.WhyCreatePopulation},
		},
		"NotRendered": {
			reason: "What the scheduler looks at is in the template",
			o:      observed(waitsForConsumer, immediately, population(1), prime()),
			want:   outline{Need: populate.NeedRender, Why: populate.WhyCreateWorker},
		},
		"PrimeWithoutNode": {
			reason: "A scheduler chooses the node, by a Pod that is no worker",
			o:      observed(waitsForConsumer, immediately, population(1), prime(), rendered),
			want:   outline{Step: "create scout " + scout1, Why: populate.WhyCreateScout},
		},
		"SourceGone": {
			reason: "For a source that is not there no node is looked for",
			o: observed(waitsForConsumer, immediately, population(1), prime(), rendered, func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceNotFound}
			}),
			want: outline{Step: "status Waiting SourceNotFound", Event: "Normal SourceNotFound", Again: 5 * time.Minute, Why: populate.WhyWaiting},
		},
		"Refused": {
			reason: "A namespace that refuses the worker refuses the scout, which is told before a volume is made",
			o: observed(waitsForConsumer, immediately, population(1), prime(), rendered, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonPodSecurityRefused, Message: "no", At: now, Step: populate.Kind(populate.CreateScout{})}
			}),
			want: outline{Step: "status Waiting PodSecurityRefused", Event: "Warning PodSecurityRefused", Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"NameTaken": {
			reason: "Somebody's Pod under the scout's name ends the attempt",
			o: observed(live, waitsForConsumer, immediately, population(1), prime(), rendered, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonNameTaken, Message: "Pod exists", At: now, Step: populate.Kind(populate.CreateScout{})}
			}),
			want: outline{Step: "status Waiting NameTaken", Event: "Warning NameTaken", Why: populate.WhyNameTaken},
		},
		"ScoutLooks": {
			reason: "A young phase is not worth a write",
			o:      observed(waitsForConsumer, immediately, population(1), prime(), scout()),
			want:   outline{Again: 2 * time.Second, Why: populate.WhyPrimePending},
		},
		"ScoutFindsNothing": {
			reason: "The scheduler's own words are told after a minute",
			o: observed(waitsForConsumer, immediately, population(1), prime(), scout(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes", LastTransitionTime: at(time.Minute),
				}}
			})),
			want: outline{Step: "status Provisioning WorkerUnschedulable", Event: "Warning WorkerUnschedulable", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"ScoutOutOfOrder": {
			reason: "A scout that its node refused makes room for another",
			o:      observed(live, waitsForConsumer, immediately, population(1), prime(), scout(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })),
			want:   outline{Step: "delete worker scout at 30", Why: populate.WhyScoutDone},
		},
		"NodeFound": {
			reason: "The node was found, so a scout that is gone is not missed",
			o:      observed(waitsForConsumer, immediately, population(1), prime(primeNode), rendered),
			want:   outline{Again: 2 * time.Second, Why: populate.WhyPrimePending},
		},
		"OtherNodeThanTheConsumers": {
			reason: "A consumer that came meanwhile follows the volume",
			o:      observed(waitsForConsumer, immediately, node, population(1), prime(), scout()),
			want:   outline{Again: 2 * time.Second, Why: populate.WhyPrimePending},
		},
		"PrimeBound": {
			reason: "The scout goes before the worker comes",
			o:      observed(live, waitsForConsumer, immediately, population(1), prime(primeBound), volume(), rendered, scout()),
			want:   outline{Step: "delete worker scout", Why: populate.WhyScoutDone},
		},
		"ScoutGoing": {
			reason: "Both at once would count twice against a quota",
			o:      observed(live, waitsForConsumer, immediately, population(1), prime(primeBound), volume(), rendered, scout(podDeleting(time.Second))),
			want:   outline{Again: 59 * time.Second, Why: populate.WhyScoutDone},
		},
		"ScoutDoesNotGo": {
			reason: "A dead node must not hold up a claim for ever",
			o:      observed(live, waitsForConsumer, immediately, population(1), prime(primeBound), volume(), rendered, scout(podDeleting(time.Minute))),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"ForeignVolume": {
			reason: "Somebody's volume is seen before there is a worker",
			o:      observed(live, waitsForConsumer, immediately, population(1), prime(primeBound), volume(matched), rendered, scout()),
			want:   outline{Step: "status Waiting PrimeBoundToForeignVolume", Event: "Warning PrimeBoundToForeignVolume", Why: populate.WhyPrimeForeign},
		},
		"AttemptOver": {
			reason: "The scout of an attempt that is over goes",
			o:      observed(live, waitsForConsumer, immediately, population(1, failed(1, v1alpha1.ReasonPrimeBoundToForeign, 0)), prime(), scout()),
			want:   outline{Step: "delete worker scout", Why: populate.WhyLeftBehind},
		},
		"WorkerRecorded": {
			reason: "A scout that an old leader made beside the worker goes",
			o: observed(live, waitsForConsumer, immediately, population(1, recorded(1)), prime(primeBound), volume(),
				worker(workerRunning(0)), scout()),
			want: outline{Step: "delete worker scout", Why: populate.WhyLeftBehind},
		},
		"ClaimGone": {
			reason: "A scout goes with its claim",
			o:      observed(live, waitsForConsumer, scout(), func(o *populate.Observed) { o.Claim = nil }),
			want:   outline{Step: "delete worker scout", Why: populate.WhyGone},
		},
		"Impostor": {
			reason: "What merely has a scout's name is not touched",
			o: observed(live, waitsForConsumer, scout(func(p *corev1.Pod) { p.Labels = nil }), func(o *populate.Observed) {
				o.Claim = nil
			}),
			want: outline{Why: populate.WhyGone},
		},
	})
}

func TestScoutIsTheWorkerToASchedulerOnly(t *testing.T) {
	resources := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	o := observed(waitsForConsumer, immediately, population(1), prime(), rendered, func(o *populate.Observed) {
		pod := o.Rendered.Pod
		pod.Labels = map[string]string{"mesh": "off"}
		pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "own"}}
		pod.Spec.PriorityClassName = "high"
		pod.Spec.ServiceAccountName = "powerful"
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
		pod.Spec.InitContainers = []corev1.Container{{Name: "offer"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}}}
		c := &pod.Spec.Containers[0]
		c.Resources, c.Env, c.Args = resources, []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}, []string{"all"}
		c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}
		c.VolumeMounts = []corev1.VolumeMount{{Name: v1alpha1.TargetVolume, MountPath: v1alpha1.TargetPath}}
		o.Rendered.Files = map[string][]byte{"a": nil}
	})
	step, ok := populate.Next(o).Step.(populate.CreateScout)
	if !ok {
		t.Fatalf("want CreateScout, got %+v", populate.Next(o))
	}
	name := populate.ScoutName(uid, 1)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name,
			Labels: map[string]string{
				v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: v1alpha1.RoleScout,
				"velero.io/exclude-from-backup": "true", "mesh": "off",
			},
			Annotations:     map[string]string{v1alpha1.AnnotationNonce: nonce, v1alpha1.AnnotationClaim: "tenant/data"},
			OwnerReferences: owner(),
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: populate.ScoutContainer, Image: "busybox", Command: []string{"/sluice/never"}, Resources: resources,
				SecurityContext: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)},
				VolumeMounts:    []corev1.VolumeMount{{Name: "sluice-never", MountPath: "/sluice/never", ReadOnly: true}},
			}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			NodeSelector:                  map[string]string{"disk": "ssd"},
			Tolerations:                   []corev1.Toleration{{Key: "own"}},
			PriorityClassName:             "high",
			Volumes: []corev1.Volume{
				{Name: v1alpha1.TargetVolume, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name1},
				}},
				{Name: "sluice-never", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
				}},
			},
		},
	}
	if diff := cmp.Diff(want, step.Scout); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
