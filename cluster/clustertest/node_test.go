package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// TestNodes shows three nodes with storage at work as users see them. The parts
// share the cluster and are independent of each other otherwise.
func TestNodes(t *testing.T) {
	t.Parallel()
	c := startForTest(t, Config{Nodes: Nodes(3), CSI: true})
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	parts := map[string]func(*testing.T, *Cluster, kubernetes.Interface){
		"labels":             checkLabels,
		"a Pod on each node": checkEachNode,
		"services":           checkServices,
		"file system volume": checkFileSystem,
		"block volume":       checkBlock,
		"snapshot and clone": checkSnapshot,
		"attributes class":   checkAttributes,
	}
	for name, check := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c, client)
		})
	}
}

func checkLabels(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 3 {
		t.Errorf("nodes: got %d, want 3", len(nodes.Items))
	}
	for _, want := range Nodes(3) {
		i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == want.Name })
		if i < 0 {
			t.Errorf("node %q is missing", want.Name)
			continue
		}
		for key, value := range want.AllLabels() {
			if got := nodes.Items[i].Labels[key]; got != value {
				t.Errorf("node %q, label %q: got %q, want %q", want.Name, key, got, value)
			}
		}
	}
}

func checkEachNode(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	for _, n := range Nodes(3) {
		got := runPod(t, client, busybox("on-"+n.Name, n.Name, "echo Hello, $0"))
		if want := "Hello, sh\n"; got != want {
			t.Errorf("Pod on %q printed %q, want %q", n.Name, got, want)
		}
	}
}

// checkServices reaches a Service from the other nodes, from the node of its
// Pod, and the API server from a Pod.
func checkServices(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	ctx := t.Context()
	server := busybox("web", "node2", "mkdir /w && echo served > /w/index.html && exec httpd -f -p 8080 -h /w")
	server.Labels = map[string]string{"app": "web"}
	if _, err := client.CoreV1().Pods("default").Create(ctx, server, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := fmt.Sprintf(`
for i in $(seq 100); do
  answer=$(printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 3 %s 80 2>/dev/null | tail -n 1)
  [ "$answer" = served ] && break
  usleep 100000
done
echo "$answer"
nc -w 3 10.96.0.1 443 </dev/null && echo API
`, service.Spec.ClusterIP)
	for _, n := range Nodes(3) {
		got := runPod(t, client, busybox("ask-"+n.Name, n.Name, ask))
		if want := "served\nAPI\n"; got != want {
			t.Errorf("from %q: got %q, want %q", n.Name, got, want)
		}
	}
}

func checkFileSystem(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createClaim(t, client, claim("files", "", corev1.PersistentVolumeFilesystem))
	write := busybox("write-files", "", "echo kept > /data/file && echo $(stat -f -c %T /data)")
	mountClaim(write, "files")
	if got := runPod(t, client, write); !strings.HasPrefix(got, "ext2/ext3") {
		t.Errorf("file system: got %q, want ext4, which busybox calls ext2/ext3", got)
	}
	read := busybox("read-files", "", "cat /data/file")
	mountClaim(read, "files")
	if got, want := runPod(t, client, read), "kept\n"; got != want {
		t.Errorf("content: got %q, want %q", got, want)
	}
}

func checkBlock(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createClaim(t, client, claim("raw", "sluice-sim-immediate", corev1.PersistentVolumeBlock))
	pod := busybox("block", "", "printf raw > /dev/disk && head -c 3 /dev/disk && [ -b /dev/disk ] && echo ' block'")
	mountClaim(pod, "raw")
	pod.Spec.Containers[0].VolumeMounts = nil
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/disk"}}
	if got, want := runPod(t, client, pod), "raw block\n"; got != want {
		t.Errorf("content: got %q, want %q", got, want)
	}
}
