// Package simulate plays the parts of a cluster that a control plane alone does
// not have: nodes with a kubelet, and a storage driver with its provisioner.
//
// A simulated node is a Node object that is kept Ready. Pods bound to it become
// Running at once, and end after the time and in the way that their annotations
// say. A simulated volume is a PersistentVolume with nothing behind it. All of
// it is driven by watches, so that a hundred Pods take hardly longer than one:
// what is measured on it is the control plane and its clients.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// UserAgent is how the simulator names itself in its requests, which tells them
// from others in an audit log.
const UserAgent = "sluice-simulate"

// Driver is the name of the simulated storage driver and its provisioner.
const Driver = "simulated.storage.sluice.dev"

// Storage classes that Start makes.
const (
	// ClassImmediate binds claims at once.
	ClassImmediate = "simulated"
	// ClassWait binds claims when a Pod that uses them has a node.
	ClassWait = "simulated-wait"
	// ClassRetain binds at once and keeps what was released.
	ClassRetain = "simulated-retain"
)

// Annotations on Pods. They are not of Sluice's domain, so that a Populator's
// template may give them to its workers.
const (
	// AnnotationRuns is how long the containers run before they end, as a Go
	// duration. A Pod without it runs until it is deleted, or its
	// activeDeadlineSeconds are over.
	AnnotationRuns = "simulation.example/runs"
	// AnnotationExitCode is the exit code they end with; default 0.
	AnnotationExitCode = "simulation.example/exit-code"
	// AnnotationFailures is how many Pods of one controller end with that exit
	// code; those after them end with 0. Without it all of them do.
	AnnotationFailures = "simulation.example/failures"
	// AnnotationMessage is their termination message.
	AnnotationMessage = "simulation.example/message"
)

// AnnotationProvisioning on a claim delays its volume, as a Go duration.
const AnnotationProvisioning = "simulation.example/provisioning"

// Config says what to simulate.
type Config struct {
	// Nodes is how many nodes there are, named node-0, node-1, …. Default 1.
	Nodes int
	// PodsPerNode is how many Pods a node takes. Default 1000.
	PodsPerNode int
}

// Simulator is a running simulation.
type Simulator struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	client  kubernetes.Interface
	names   []string
}

// Start makes the nodes, the driver and its storage classes, and plays their
// parts until Stop.
func Start(ctx context.Context, cfg *rest.Config, c Config) (*Simulator, error) {
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.PodsPerNode == 0 {
		c.PodsPerNode = 1000
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = UserAgent
	cfg.QPS, cfg.Burst = -1, 0
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build client of the simulator: %w", err)
	}
	if err := makeStorage(ctx, client); err != nil {
		return nil, err
	}
	// The simulation outlives the context of whoever starts it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Simulator{cancel: cancel, client: client}
	for i := range c.Nodes {
		name := fmt.Sprintf("node-%d", i)
		if err := makeNode(ctx, client, name, c.PodsPerNode); err != nil {
			cancel()
			return nil, err
		}
		s.names = append(s.names, name)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	kubelet := newKubelet(client, factory.Core().V1().Pods(), s.names)
	provisioner, err := newProvisioner(client, factory)
	if err != nil {
		cancel()
		return nil, err
	}
	factory.Start(life.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			cancel()
			return nil, fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
		}
	}
	s.running.Go(func() { kubelet.run(life) })
	s.running.Go(func() { provisioner.run(life) })
	s.running.Go(func() { keepReady(life, client, s.names) })
	return s, nil
}

// Stop ends the simulation and removes its nodes. Volumes and claims stay as
// they are.
func (s *Simulator) Stop(ctx context.Context) error {
	s.cancel()
	s.running.Wait()
	var errs []error
	for _, name := range s.names {
		if err := s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete node %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// makeStorage makes the driver's object and its classes.
func makeStorage(ctx context.Context, client kubernetes.Interface) error {
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: Driver},
		// Nothing is attached, so no VolumeAttachment is to be waited for.
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy)},
	}
	if _, err := client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create driver %q: %w", Driver, err)
	}
	for name, class := range map[string]storagev1.StorageClass{
		ClassImmediate: {ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)},
		ClassWait:      {ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		ClassRetain:    {ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)},
	} {
		class.Name, class.Provisioner = name, Driver
		if _, err := client.StorageV1().StorageClasses().Create(ctx, &class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create storage class %q: %w", name, err)
		}
	}
	return nil
}

// duration reads a duration from annotations; ok is false if there is none.
func duration(annotations map[string]string, key string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(annotations[key])
	return d, err == nil
}
