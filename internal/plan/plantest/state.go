package plantest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func typesUID(s string) types.UID { return types.UID(s) }

// epoch is when every model begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// disk is a volume and the truth about the storage behind it, which no
// controller can see.
type disk struct {
	pv *corev1.PersistentVolume
	// writers are the UIDs of the workers that ever wrote to it.
	writers []types.UID
	// filled says that the first of them finished its work.
	filled bool
	// released says that the volume was Released once.
	released bool
	// destroyed says that the storage is gone, whatever the API still shows.
	destroyed bool
	// foreign says that somebody else's data is on it.
	foreign bool
}

// provisioning is a volume that the provisioner has begun to make.
type provisioning struct {
	claim           types.UID
	namespace, name string
}

// frozen is a cache that stands still: what it shows of one kind.
type frozen struct {
	kind string
	pvcs []*corev1.PersistentVolumeClaim
	pods []*corev1.Pod
	pop  *v1alpha1.Population
	vols []*disk
}

// state is one state of the model. Objects are never changed in place: a state
// shares them with the states it came from.
type state struct {
	sc  *Scenario
	now time.Time

	pvcs []*corev1.PersistentVolumeClaim // the claim and all primes
	pods []*corev1.Pod
	pop  *v1alpha1.Population
	vols []*disk

	inflight  []provisioning
	sourceGen int64
	// remadeSource is that the source was re-created, and newSource that no
	// attempt was allocated since.
	remadeSource, newSource bool

	// moved is that a user changed the populator's placement, revoked that the
	// source is not granted, wasRevoked that it was not once.
	moved, revoked, wasRevoked bool
	// allowsRoot is that the populator lets its worker be root, crowded that it is
	// a neighbour's turn, pushed that one came later and before the claim, warned
	// that somebody was told of a Pod that cannot reach its volume.
	allowsRoot, crowded, pushed, warned bool
	// clockSet is that the clocks were set: no distance in time can be trusted.
	clockSet bool
	// fills are the plugin's memory, calls are under way to it, replies are what
	// the manager's process remembers of its answers.
	fills   []fill
	calls   []populate.CallPlugin
	replies []reply

	frozen    *frozen
	late      populate.Step
	lateFor   types.UID
	lateEvent *populate.Event
	refused   populate.Refusal

	// left is how many disturbances may yet happen; meddled says that a user
	// interfered, forced that one took away what a plugin was writing to, slow
	// that time passed while something could have happened.
	left     int
	meddled  bool
	forced   bool
	slow     bool
	remade   bool
	deleted  bool
	rv, uids int

	// violation is the first breach that a write of the manager itself was.
	violation string
}

func newState(sc *Scenario, disturbances int) *state {
	s := &state{sc: sc, now: epoch.Add(time.Hour), left: disturbances, sourceGen: 1, crowded: sc.Crowded}
	if sc.LateSource {
		s.sourceGen = 0
	}
	s.addPVC(sc.claim("claim-1"))
	if sc.ForeignVolume {
		pv := newPV("foreign", corev1.PersistentVolumeReclaimDelete)
		pv.CreationTimestamp = metav1.NewTime(epoch)
		pv.Status.Phase = corev1.VolumeAvailable
		s.addDisk(&disk{pv: pv, foreign: true})
	}
	if sc.NameTaken {
		p := Claim(populate.TemporaryName("claim-1", 1), "somebodys")
		p.Spec.DataSourceRef, p.Spec.VolumeName = nil, "theirs"
		s.addPVC(p)
		s.addPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: populate.TemporaryName("claim-1", 1), UID: "somebodys-pod"}})
	}
	return s
}

func (s *state) clone() *state {
	c := *s
	c.pvcs, c.pods, c.vols = slices.Clone(s.pvcs), slices.Clone(s.pods), slices.Clone(s.vols)
	c.inflight = slices.Clone(s.inflight)
	c.fills, c.calls, c.replies = slices.Clone(s.fills), slices.Clone(s.calls), slices.Clone(s.replies)
	return &c
}

func (s *state) nextRV() string {
	s.rv++
	return strconv.Itoa(s.rv)
}

func (s *state) newUID(kind string) types.UID {
	s.uids++
	return types.UID(fmt.Sprintf("%s-%d", kind, s.uids))
}

func (s *state) stamp() metav1.Time { return metav1.NewTime(s.now) }

// claim is what stands under the claim's name.
func (s *state) claim() *corev1.PersistentVolumeClaim { return s.pvc(namespace, claimName) }

func (s *state) pvc(namespace, name string) *corev1.PersistentVolumeClaim {
	for _, p := range s.pvcs {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

func (s *state) pvcByUID(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, p := range s.pvcs {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

func (s *state) pod(namespace, name string) *corev1.Pod {
	for _, p := range s.pods {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

func (s *state) disk(name string) *disk {
	for _, d := range s.vols {
		if d.pv.Name == name {
			return d
		}
	}
	return nil
}

func (s *state) addPVC(p *corev1.PersistentVolumeClaim) {
	p.ResourceVersion, p.CreationTimestamp = s.nextRV(), s.stamp()
	s.pvcs = append(s.pvcs, p)
}

func (s *state) addPod(p *corev1.Pod) {
	p.ResourceVersion, p.CreationTimestamp = s.nextRV(), s.stamp()
	s.pods = append(s.pods, p)
}

func (s *state) addDisk(d *disk) {
	d.pv.ResourceVersion = s.nextRV()
	s.vols = append(s.vols, d)
}

func newPV(name string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              className,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumePending},
	}
}

// The edit methods replace an object by a changed copy.

func (s *state) editPVC(p *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) {
	c := p.DeepCopy()
	change(c)
	c.ResourceVersion = s.nextRV()
	s.pvcs[slices.Index(s.pvcs, p)] = c
}

func (s *state) editPod(p *corev1.Pod, change func(*corev1.Pod)) {
	c := p.DeepCopy()
	change(c)
	c.ResourceVersion = s.nextRV()
	s.pods[slices.Index(s.pods, p)] = c
}

func (s *state) editPop(change func(*v1alpha1.Population)) {
	c := s.pop.DeepCopy()
	change(c)
	c.ResourceVersion = s.nextRV()
	s.pop = c
}

func (s *state) editPV(d *disk, change func(*corev1.PersistentVolume)) {
	c := *d
	c.pv = d.pv.DeepCopy()
	change(c.pv)
	c.pv.ResourceVersion = s.nextRV()
	if c.pv.Status.Phase == corev1.VolumeReleased {
		c.released = true
	}
	s.vols[slices.Index(s.vols, d)] = &c
}

// truth changes what is true about a disk and not shown by the API.
func (s *state) truth(d *disk, change func(*disk)) {
	c := *d
	c.writers = slices.Clone(d.writers)
	change(&c)
	s.vols[slices.Index(s.vols, d)] = &c
}

// deletePVC deletes as the API server does: pvc-protection's finalizer holds.
func (s *state) deletePVC(p *corev1.PersistentVolumeClaim) {
	if p.DeletionTimestamp == nil {
		s.editPVC(p, func(p *corev1.PersistentVolumeClaim) { t := s.stamp(); p.DeletionTimestamp = &t })
	}
}

// deletePod deletes as the API server does: a Pod that has no node, or has
// ended, goes at once, else the kubelet stops it first.
func (s *state) deletePod(p *corev1.Pod) {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		s.dropPod(p)
		return
	}
	if p.DeletionTimestamp == nil {
		s.editPod(p, func(p *corev1.Pod) { t := s.stamp(); p.DeletionTimestamp = &t })
	}
}

func (s *state) dropPod(p *corev1.Pod) {
	s.pods = slices.DeleteFunc(s.pods, func(x *corev1.Pod) bool { return x == p })
}

func (s *state) dropPVC(p *corev1.PersistentVolumeClaim) {
	s.pvcs = slices.DeleteFunc(s.pvcs, func(x *corev1.PersistentVolumeClaim) bool { return x == p })
}

func (s *state) dropDisk(d *disk) {
	s.vols = slices.DeleteFunc(s.vols, func(x *disk) bool { return x == d })
}

// populator is the populator of the model's source kind as it stands.
func (s *state) populator() *v1alpha1.Populator {
	p := Populator()
	p.Spec.Placement = s.sc.Placement
	if s.moved {
		p.Spec.Placement, p.Generation = v1alpha1.PlacementClaim, 2
	}
	if s.allowsRoot {
		p.Spec.Worker.RootIfNeeded, p.Generation = true, p.Generation+1
	}
	if s.sc.Plugin {
		p.Spec.Worker, p.Spec.Plugin = nil, &v1alpha1.Plugin{Socket: "/run/sluice/hello.sock"}
		p.Status.Plugin = &v1alpha1.PluginInfo{Name: "hello", Capabilities: []v1alpha1.PluginCapability{v1alpha1.PluginFills}}
	}
	return p
}

// held says that our finalizer is on a claim.
func held(p *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(p.Finalizers, v1alpha1.FinalizerPopulation)
}

// isPrime says that a PVC is not the claim under the claim's name.
func isPrime(p *corev1.PersistentVolumeClaim) bool { return p.Name != claimName }

// breach notes the first violation that an actor itself commits.
func (s *state) breach(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
	}
}
