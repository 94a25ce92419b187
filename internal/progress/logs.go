package progress

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// maxLine bounds what is read of a log.
const maxLine = 4096

// apiLogs reads logs through the API server.
type apiLogs struct{ client corev1client.PodsGetter }

// FromAPI returns Logs that are read through the API server, which needs the
// right to get pods/log.
func FromAPI(client corev1client.PodsGetter) Logs { return apiLogs{client} }

// LastLine implements Logs.
func (l apiLogs) LastLine(ctx context.Context, namespace, pod string) ([]byte, error) {
	lines, limit := int64(1), int64(maxLine)
	stream, err := l.client.Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: v1alpha1.WorkerContainer, TailLines: &lines, LimitBytes: &limit,
	}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read log of worker %q: %w", namespace+"/"+pod, err)
	}
	line, err := io.ReadAll(io.LimitReader(stream, maxLine))
	if closing := stream.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("read log of worker %q: %w", namespace+"/"+pod, err)
	}
	return line, nil
}
