package storage

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/state"
)

// What all tests share.
var (
	cluster *clustertest.Cluster
	kube    *kubernetes.Clientset
	objects *dynamic.DynamicClient
	disks   *state.Store
	faults  fault.Set
)

// The default nodes, each in a zone of its own; the third attaches no gen2.
const (
	node1, zoneA = "node1", "zone-a"
	node2        = "node2"
)

// patience bounds how long a test waits for one thing on a slow machine.
const patience = 90 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for the cluster most of the time, not for a processor.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(clustertest.Main(m, clustertest.Config{Nodes: clustertest.Nodes(3), CSI: true}, ready))
}

func ready(c *clustertest.Cluster) error {
	cluster = c
	var err error
	if kube, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	if objects, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	layout := config.Layout{Dir: filepath.Dir(c.Kubeconfig)}
	if disks, err = state.Open(layout.Storage(config.ID(filepath.Dir(layout.Dir), c.Name))); err != nil {
		return err
	}
	faults = fault.In(disks)
	return nil
}

// eventually calls check until it returns nil, and fails the test with its
// last answer if it does not in time.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, what, patience, check)
}

// space makes a namespace that is deleted, with all in it, when the test ends.
// If the test fails, it first prints what happened there.
func space(t *testing.T) string {
	t.Helper()
	ns, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "storage-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if t.Failed() {
			diagnose(ctx, t, ns.Name)
		}
		if err := kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// diagnose prints what a reader of a failure asks first.
func diagnose(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	events, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for _, e := range events.Items {
		t.Logf("%s %s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	for _, component := range []string{"csi-controller", "csi-node-" + node1, "csi-provisioner", "csi-resizer"} {
		t.Logf("the end of %s's log:\n%s", component, cluster.Log(component, 15))
	}
}

// A volume is what a test wants of a claim; the zero value is a file system on
// the default class.
type volume struct {
	class string
	block bool
	from  *corev1.TypedObjectReference
}

func (v volume) claim(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	mode := corev1.PersistentVolumeFilesystem
	if v.block {
		mode = corev1.PersistentVolumeBlock
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:    &mode,
			Resources:     requests("10Mi"),
			DataSourceRef: v.from,
		},
	}
	if v.class != "" {
		claim.Spec.StorageClassName = &v.class
	}
	made, err := kube.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func requests(size string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
}

// run starts a Pod with a claim's volume at /volume, or at /dev/volume, that
// executes a shell line on the node, or on any for "".
func (v volume) run(t *testing.T, namespace, name, claim, node, line string) {
	t.Helper()
	c := corev1.Container{Name: "main", Image: "busybox:latest", Command: []string{"sh", "-ec", line}}
	if v.block {
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: "/dev/volume"}}
	} else {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}}
	}
	quick := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &quick,
			Containers:                    []corev1.Container{c},
			Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	if _, err := kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reaches waits until a Pod is in a phase, and returns it.
func reaches(t *testing.T, namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, fmt.Sprintf("Pod %q is %s", name, phase), func(ctx context.Context) (err error) {
		if pod, err = kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
	return pod
}

// prints waits until a Pod has succeeded and returns what it printed.
func prints(t *testing.T, namespace, name string) string {
	t.Helper()
	reaches(t, namespace, name, corev1.PodSucceeded)
	stream, err := kube.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func remove(t *testing.T, namespace, pod string) {
	t.Helper()
	if err := kube.CoreV1().Pods(namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("Pod %q is gone", pod), func(ctx context.Context) error {
		_, err := kube.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// record waits until a claim is bound, and returns the driver's record of its
// volume as of now, and the volume.
func record(t *testing.T, namespace, claim string) (state.Volume, *corev1.PersistentVolume) {
	t.Helper()
	var pv *corev1.PersistentVolume
	eventually(t, fmt.Sprintf("claim %q is bound", claim), func(ctx context.Context) error {
		c, err := kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", c.Status.Phase)
		}
		pv, err = kube.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		return err
	})
	v, err := disks.Volume(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		t.Fatal(err)
	}
	return v.At(time.Now()), pv
}
