package population

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// watchWorkers returns the names of all Pods with a container that mounts a
// claim which have been in a namespace since.
func watchWorkers(t *testing.T, ns string) func() []string {
	t.Helper()
	watcher, err := client.NewWithWatch(cluster.RESTConfig(), client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watcher.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	var (
		mu   sync.Mutex
		seen []string
	)
	go func() {
		for e := range events.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added && mountsClaim(pod) {
				mu.Lock()
				seen = append(seen, pod.Name)
				mu.Unlock()
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func mountsClaim(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		for i := range pod.Spec.Containers {
			for _, m := range pod.Spec.Containers[i].VolumeMounts {
				if m.Name == v.Name {
					return true
				}
			}
		}
	}
	return false
}

func TestClaimIsFilledBeforeItHasAConsumer(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(time.Second))
	s.source(t)
	workers := watchWorkers(t, s.namespace)
	claim := s.claim("claim", simulate.ClassWait)
	claim.Annotations = map[string]string{v1alpha1.AnnotationPopulate: v1alpha1.PopulateImmediately}
	create(t, claim)
	volume := bound(t, claim, 20*time.Second)
	if volume.Spec.NodeAffinity == nil {
		t.Errorf("volume %q was made for no node", volume.Name)
	}
	if p := succeeded(t, claim, 5*time.Second); p.Spec.Attempt != 1 {
		t.Errorf("it took %d attempts", p.Spec.Attempt)
	}
	if seen := workers(); len(seen) != 1 {
		t.Errorf("Pods %q mounted the claim, want one", seen)
	}
	clean(t, s.namespace, 5*time.Second)
	for _, e := range events(t, claim) {
		if e != "Normal "+v1alpha1.ReasonPopulated && e != "Normal "+v1alpha1.ReasonPopulationStarted {
			t.Errorf("event %q was told", e)
		}
	}

	pod := consumer(s.namespace, "claim")
	create(t, pod)
	node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	eventually(t, 20*time.Second, "consumer runs", runsOn(pod, node))
}

// TestScoutDeleted deletes a scout that waits for a node: another one takes its
// place, and when a node appears the claim is filled.
func TestScoutDeleted(t *testing.T) {
	s := shared(t)
	s.populator(t, runs(0), func(p *v1alpha1.Populator) {
		p.Spec.Worker.NodeSelector = map[string]string{"test.sluice.dev/later": s.namespace}
	})
	s.source(t)
	claim := s.claim("claim", simulate.ClassWait)
	claim.Annotations = map[string]string{v1alpha1.AnnotationPopulate: v1alpha1.PopulateImmediately}
	create(t, claim)
	var first corev1.Pod
	scout := func(ctx context.Context) error {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleScout}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].UID == first.UID || pods.Items[0].Spec.NodeName != "" {
			return fmt.Errorf("%d scouts", len(pods.Items))
		}
		first = pods.Items[0]
		return nil
	}
	eventually(t, 15*time.Second, "scout waits for a node", scout)
	if err := kube.Delete(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	eventually(t, 15*time.Second, "there is another scout", scout)

	var nodes corev1.NodeList
	if err := kube.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	node := &nodes.Items[0]
	change := client.MergeFrom(node.DeepCopy())
	node.Labels["test.sluice.dev/later"] = s.namespace
	if err := kube.Patch(t.Context(), node, change); err != nil {
		t.Fatal(err)
	}
	bound(t, claim, 20*time.Second)
	clean(t, s.namespace, 5*time.Second)
}
