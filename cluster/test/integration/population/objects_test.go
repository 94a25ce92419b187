package population

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// accept waits until a Populator is served.
func accept(t *testing.T, p *v1alpha1.Populator) {
	t.Helper()
	eventually(t, 30*time.Second, "populator is accepted", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
			return fmt.Errorf("conditions are %+v", p.Status.Conditions)
		}
		return nil
	})
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := kube.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// labelConsumer tells the Pods of a test from the workers of the manager.
const labelConsumer = "test.example/consumer"

// consumer is a Pod that uses a claim.
func consumer(ns, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "consumer-of-" + claim, Labels: map[string]string{labelConsumer: ""}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox",
				VolumeMounts: []corev1.VolumeMount{{Name: "vol", MountPath: "/mnt"}},
			}},
			Volumes: []corev1.Volume{{Name: "vol", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

// gone deletes an object and waits until it is gone.
func gone(t *testing.T, o client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if err := kube.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete %q: %v", o.GetName(), err)
	}
	if err := clustertest.Until(ctx, func() (bool, error) {
		err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}); err != nil {
		t.Errorf("%q is not gone: %v", o.GetName(), err)
	}
}

// bound waits until a claim is bound for good and returns its volume.
func bound(t *testing.T, claim *corev1.PersistentVolumeClaim, within time.Duration) *corev1.PersistentVolume {
	t.Helper()
	volume := &corev1.PersistentVolume{}
	eventually(t, within, "claim "+claim.Name+" is bound", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim is %s, population: %s", claim.Status.Phase, describe(ctx, claim))
		}
		return kube.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)
	})
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		t.Fatalf("volume %q of claim %q refers to %+v", volume.Name, claim.Name, ref)
	}
	return volume
}

// clean waits until no temporary of a namespace is left.
func clean(t *testing.T, ns string, within time.Duration) {
	t.Helper()
	eventually(t, within, "temporaries are gone", func(ctx context.Context) error { return leftIn(ctx, ns) })
}

// leftIn says which temporaries are left in a namespace.
func leftIn(ctx context.Context, ns string) error {
	labelled := client.HasLabels{v1alpha1.LabelRole}
	var claims corev1.PersistentVolumeClaimList
	if err := kube.List(ctx, &claims, client.InNamespace(ns), labelled); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(ns), labelled); err != nil {
		return err
	}
	var files corev1.ConfigMapList
	if err := kube.List(ctx, &files, client.InNamespace(ns), labelled); err != nil {
		return err
	}
	if n := len(claims.Items) + len(pods.Items) + len(files.Items); n > 0 {
		return fmt.Errorf("%d primes, %d workers, %d files", len(claims.Items), len(pods.Items), len(files.Items))
	}
	return nil
}

// succeeded waits until the Population of a claim says so.
func succeeded(t *testing.T, claim *corev1.PersistentVolumeClaim, within time.Duration) *v1alpha1.Population {
	t.Helper()
	p := &v1alpha1.Population{}
	eventually(t, within, "population "+claim.Name+" succeeded", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), p); err != nil {
			return err
		}
		if p.Status.Phase != v1alpha1.PhaseSucceeded {
			return fmt.Errorf("population: %s", describe(ctx, claim))
		}
		return nil
	})
	return p
}

// waits waits until the Population of a claim gives a reason.
func waits(t *testing.T, claim *corev1.PersistentVolumeClaim, reason string, within time.Duration) *v1alpha1.Population {
	t.Helper()
	p := &v1alpha1.Population{}
	eventually(t, within, "population "+claim.Name+" says "+reason, func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), p); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != reason {
			return fmt.Errorf("population: %s", describe(ctx, claim))
		}
		return nil
	})
	return p
}

// describe says where the population of a claim is.
func describe(ctx context.Context, claim *corev1.PersistentVolumeClaim) string {
	p := &v1alpha1.Population{}
	if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), p); err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return fmt.Sprintf("attempt %d, no condition", p.Spec.Attempt)
	}
	return fmt.Sprintf("attempt %d, %s: %s: %s", p.Spec.Attempt, p.Status.Phase, c.Reason, c.Message)
}

// events are the reasons of the events on a claim that Sluice told, in order.
func events(t *testing.T, claim *corev1.PersistentVolumeClaim) []string {
	t.Helper()
	var list corev1.EventList
	if err := kube.List(t.Context(), &list, client.InNamespace(claim.Namespace),
		client.MatchingFields{"involvedObject.uid": string(claim.UID)}); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if list.Items[i].ReportingController == "sluice.dev/population" {
			out = append(out, list.Items[i].Type+" "+list.Items[i].Reason)
		}
	}
	return out
}

// told waits for an event on a claim. Events are sent beside everything else, so
// a record may be seen before them.
func told(t *testing.T, claim *corev1.PersistentVolumeClaim, event string) {
	t.Helper()
	eventually(t, soon, "the claim is told "+event, func(context.Context) error {
		if got := events(t, claim); !slices.Contains(got, event) {
			return fmt.Errorf("its events are %q", got)
		}
		return nil
	})
}

// warningsOn are the Warning events on a claim that Sluice told.
func warningsOn(t *testing.T, claim *corev1.PersistentVolumeClaim) []string {
	t.Helper()
	return slices.DeleteFunc(events(t, claim), func(e string) bool { return !strings.HasPrefix(e, corev1.EventTypeWarning) })
}

// soon is when a user is told where a claim is, on a machine that has much to
// do. On an idle one it is less than a third of it.
const soon = 15 * time.Second

// runs is the annotation that ends a worker after a time.
func runs(d time.Duration) map[string]string {
	return map[string]string{simulate.AnnotationRuns: d.String()}
}

// runsOn says what is missing until a Pod runs on a node.
func runsOn(pod *corev1.Pod, node string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != node {
			return fmt.Errorf("pod is %s on node %q, want it to run on %q", pod.Status.Phase, pod.Spec.NodeName, node)
		}
		return nil
	}
}

// noVolumes says which volumes of a namespace's claims are left.
func noVolumes(ns string) func(context.Context) error {
	return func(ctx context.Context) error {
		var list corev1.PersistentVolumeList
		if err := kube.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if ref := list.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == ns {
				return fmt.Errorf("volume %q of claim %q is %s", list.Items[i].Name, ref.Name, list.Items[i].Status.Phase)
			}
		}
		return nil
	}
}

// workerRuns says what is missing until a worker of a namespace runs.
func workerRuns(ns string) func(context.Context) error {
	return func(ctx context.Context) error {
		var list corev1.PodList
		if err := kube.List(ctx, &list, client.InNamespace(ns), client.HasLabels{v1alpha1.LabelRole}); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%d workers, none runs", len(list.Items))
	}
}
