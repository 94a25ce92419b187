package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/cluster/storage"
)

type runtimeObject = runtime.Object

// Source kinds of the tests.
const (
	groupHello    = "hello.k8s.io"
	groupExamples = "examples.sluice.dev"
	groupTest     = "e2e.sluice.dev"
)

// create makes an object that has to be accepted.
func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := kube.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %q: %v", o, o.GetName(), err)
	}
}

// source is an object of a source kind; all of them are called src.
func source(group, kind, namespace string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": "src"},
		"spec":     spec,
	}}
}

// claimFor is a claim of a class whose data comes from a source.
func claimFor(namespace, name, class string, mode corev1.PersistentVolumeMode, group, kind, from string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			VolumeMode:       &mode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: from},
		},
	}
}

// reader is a Pod that prints what is at the start of a claim's volume: a file
// of it, or a line of the device.
func reader(namespace, claim, file string, mode corev1.PersistentVolumeMode) *corev1.Pod {
	c := corev1.Container{Name: "read", Image: "busybox:latest"}
	if mode == corev1.PersistentVolumeBlock {
		c.Command = []string{"head", "-n", "1", "/dev/volume"}
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: "/dev/volume"}}
	} else {
		c.Command = []string{"cat", "/volume/" + file}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "read-" + claim},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{c},
			Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

// prints waits until a Pod has succeeded and compares what it printed.
func prints(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Pod %q succeeds", pod.Name), patience, func(ctx context.Context) error {
		p, err := get(ctx, pod.Namespace, pod.Name, &corev1.Pod{})
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.Conditions)
		}
		return nil
	})
	got, err := podLog(t.Context(), pod.Namespace, pod.Name, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("Pod %q printed %q, want %q", pod.Name, got, want)
	}
}

// Classes of the simulated storage.
const (
	immediate = storage.ImmediateClass
	waiting   = storage.Class
)
