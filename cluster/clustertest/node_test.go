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

// runPod runs a busybox Pod to its end and returns what it printed.
func runPod(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) string {
	t.Helper()
	ctx := t.Context()
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var last *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return last.Status.Phase == corev1.PodSucceeded || last.Status.Phase == corev1.PodFailed, nil
	})
	if err != nil || last.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("pod %q: %v; %s", pod.Name, err, explain(ctx, client, last))
	}
	stream, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
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
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:    "shell",
				Image:   "busybox:latest",
				Command: []string{"sh", "-c", script},
			}},
		},
	}
}

func TestOneNode(t *testing.T) {
	c := startForTest(t, Config{Nodes: Nodes(1)})
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	begin := time.Now()
	got := runPod(t, client, busybox("hello", "", "echo Hello, world"))
	if want := "Hello, world\n"; got != want {
		t.Errorf("logs: got %q, want %q", got, want)
	}
	t.Logf("first Pod took %s", time.Since(begin).Round(10*time.Millisecond))
}
