package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// kubelet is the kubelet of all simulated nodes.
type kubelet struct {
	*worker
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  []string
	// started holds the times that Pods began to run, by UID: the API keeps
	// whole seconds only, and a Pod is to run for as long as it was asked to.
	started sync.Map

	mu sync.Mutex
	// failures counts the Pods that failed, by the UID of their controller.
	failures map[types.UID]int
}

func newKubelet(client kubernetes.Interface, pods coreinformers.PodInformer, nodes []string) *kubelet {
	k := &kubelet{client: client, pods: pods.Lister(), nodes: nodes, failures: map[types.UID]int{}}
	k.worker = newWorker("kubelet", k.sync)
	_, _ = pods.Informer().AddEventHandler(k.handler()) // fails only on a stopped informer
	return k
}

// sync brings a Pod to where it is by now.
func (k *kubelet) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, nil //nolint:nilerr // no key of ours
	}
	pod, err := k.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get pod %q: %w", key, err)
	}
	if !slices.Contains(k.nodes, pod.Spec.NodeName) {
		return 0, nil
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		k.started.Delete(pod.UID)
		return 0, k.remove(ctx, pod)
	case ended:
		return 0, nil
	case pod.Status.Phase != corev1.PodRunning:
		now := metav1.Now()
		k.started.LoadOrStore(pod.UID, now.Time)
		return 0, k.report(ctx, pod, running(pod, now))
	}
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return 0, nil
	}
	reported := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	began := reported.Time
	if exact, ok := k.started.Load(pod.UID); ok {
		began, _ = exact.(time.Time) // nothing else is stored
	}
	runs, ends := duration(pod.Annotations, AnnotationRuns)
	late := false
	if d := pod.Spec.ActiveDeadlineSeconds; d != nil {
		limit := time.Duration(*d) * time.Second
		late = !ends || limit < runs
		if late {
			runs, ends = limit, true
		}
	}
	if !ends {
		return 0, nil
	}
	if left := runs - time.Since(began); left > 0 {
		return left, nil
	}
	k.started.Delete(pod.UID)
	if late {
		status := over(pod, reported, metav1.Now(), killed)
		status.Reason, status.Message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		return 0, k.report(ctx, pod, status)
	}
	return 0, k.report(ctx, pod, over(pod, reported, metav1.Now(), k.exitCode(pod)))
}

// killed is the exit code of a process that ended by SIGKILL.
const killed = 137

// exitCode is what the containers of a Pod end with.
func (k *kubelet) exitCode(pod *corev1.Pod) int32 {
	code, _ := strconv.ParseInt(pod.Annotations[AnnotationExitCode], 10, 32) // absent: 0
	limit, err := strconv.Atoi(pod.Annotations[AnnotationFailures])
	controller := metav1.GetControllerOf(pod)
	if err != nil || controller == nil || code == 0 {
		return int32(code)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failures[controller.UID] >= limit {
		return 0
	}
	k.failures[controller.UID]++
	return int32(code)
}

// remove does what a kubelet does last: the Pod has stopped, its object may go.
func (k *kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove pod %q: %w", pod.Name, err)
	}
	return nil
}

func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status of pod %q: %w", pod.Name, err)
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report status of pod %q: %w", pod.Name, err)
	}
	return nil
}

// running is the status of a Pod all of whose containers run.
func running(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.Phase = corev1.PodRunning
	s.StartTime = &now
	s.HostIP, s.PodIP = "192.0.2.1", "192.0.2.2"
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: s.HostIP}}, []corev1.PodIP{{IP: s.PodIP}}
	condition(&s, corev1.PodInitialized, corev1.ConditionTrue, now)
	condition(&s, corev1.ContainersReady, corev1.ConditionTrue, now)
	condition(&s, corev1.PodReady, corev1.ConditionTrue, now)
	s.ContainerStatuses = nil
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "simulated", ContainerID: "simulated://" + string(pod.UID) + "/" + c.Name,
			Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

// over is the status of a Pod all of whose containers have ended.
func over(pod *corev1.Pod, started, now metav1.Time, code int32) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.Phase = corev1.PodSucceeded
	reason := "Completed"
	if code != 0 {
		s.Phase, reason = corev1.PodFailed, "Error"
	}
	condition(&s, corev1.ContainersReady, corev1.ConditionFalse, now)
	condition(&s, corev1.PodReady, corev1.ConditionFalse, now)
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		c.Ready, c.Started = false, ptr.To(false)
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: pod.Annotations[AnnotationMessage],
			StartedAt: started, FinishedAt: now, ContainerID: c.ContainerID,
		}}
	}
	return s
}

func condition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus, now metav1.Time) {
	c := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			s.Conditions[i] = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}
