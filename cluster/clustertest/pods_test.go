package clustertest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// errorf makes the errors that say what a test still waits for.
var errorf = fmt.Errorf

// runPod runs a Pod to its end and returns what it printed.
func runPod(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) string {
	t.Helper()
	ctx := t.Context()
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPhase(t, client, pod.Name, corev1.PodSucceeded)
	stream, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(stream)
	if closeErr := stream.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return string(out)
}

// awaitPhase waits until a Pod is in the phase.
func awaitPhase(t *testing.T, client kubernetes.Interface, name string, phase corev1.PodPhase) {
	t.Helper()
	var last *corev1.Pod
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return last.Status.Phase == phase || last.Status.Phase == corev1.PodFailed, nil
	})
	if err != nil || last.Status.Phase != phase {
		t.Fatalf("Pod %q: %v; %s", name, err, explain(t.Context(), client, last))
	}
}

// explain says what a Pod is waiting for.
func explain(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) string {
	if pod == nil {
		return "never seen"
	}
	text := []string{fmt.Sprintf("phase %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)}
	events, err := client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err != nil {
		return err.Error()
	}
	for _, e := range events.Items {
		text = append(text, e.Reason+": "+e.Message)
	}
	return strings.Join(text, "\n")
}

// busybox returns a Pod that runs a shell script on a node (any, if empty).
func busybox(name, node, script string) *corev1.Pod {
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:    "shell",
				Image:   "busybox:latest",
				Command: []string{"sh", "-c", script},
			}},
		},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	}
	return pod
}
