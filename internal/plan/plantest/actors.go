package plantest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	selectedNode      = "volume.kubernetes.io/selected-node"
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	boundByController = "pv.kubernetes.io/bound-by-controller"

	storageProvisioner = "volume.kubernetes.io/storage-provisioner"
)

// action is one thing that may happen next. do changes a fresh copy.
type action struct {
	name string
	cost int
	do   func(*state)
}

// kubernetes lists what Kubernetes' own controllers may do next.
func (s *state) kubernetes() []action {
	var out []action
	add := func(name string, do func(*state)) { out = append(out, action{name: name, do: do}) }
	for _, p := range s.pvcs {
		s.controlPVC(p, add)
		s.provision(p, add)
		s.protectPVC(p, add)
		s.selectNode(p, add)
	}
	for _, d := range s.vols {
		s.controlPV(d, add)
	}
	for _, f := range s.inflight {
		add("provisioner makes the volume of "+f.name, func(s *state) { s.finishProvisioning(f) })
	}
	for _, p := range s.pods {
		s.schedule(p, add)
		s.kubelet(p, add)
	}
	s.collect(add)
	s.plugin(add)
	return out
}

type adder func(name string, do func(*state))

// controlPVC is the PV controller's part for a claim.
func (s *state) controlPVC(p *corev1.PersistentVolumeClaim, add adder) {
	if p.Spec.VolumeName != "" {
		d := s.disk(p.Spec.VolumeName)
		if p.Status.Phase == corev1.ClaimBound && (d == nil || d.pv.Spec.ClaimRef == nil || d.pv.Spec.ClaimRef.UID != p.UID) {
			add("PV controller finds "+p.Name+" Lost", func(s *state) {
				s.editPVC(p, func(p *corev1.PersistentVolumeClaim) { p.Status.Phase = corev1.ClaimLost })
			})
		}
		return
	}
	if p.DeletionTimestamp != nil {
		return
	}
	for _, d := range s.vols {
		if ref := d.pv.Spec.ClaimRef; ref != nil && ref.UID == p.UID && d.pv.DeletionTimestamp == nil && serves(d.pv, p) {
			// Whatever its phase: a Released volume that names a claim is bound.
			add("PV controller binds "+p.Name+" to "+d.pv.Name, func(s *state) { s.bind(p, d, false) })
			return
		}
	}
	if s.sc.WaitForConsumer || s.sc.Immediately {
		return // the scheduler matches
	}
	for _, d := range s.vols {
		if available(d) && serves(d.pv, p) {
			add("PV controller matches "+p.Name+" with "+d.pv.Name, func(s *state) { s.bind(p, d, true) })
		}
	}
}

// serves says that a volume has every access mode that a claim asks for.
func serves(pv *corev1.PersistentVolume, p *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(p.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(pv.Spec.AccessModes, m)
	})
}

func available(d *disk) bool {
	return d.pv.Spec.ClaimRef == nil && d.pv.Status.Phase == corev1.VolumeAvailable && d.pv.DeletionTimestamp == nil
}

func (s *state) bind(p *corev1.PersistentVolumeClaim, d *disk, match bool) {
	s.editPV(d, func(pv *corev1.PersistentVolume) {
		if match {
			pv.Spec.ClaimRef = reference(p)
			metav1.SetMetaDataAnnotation(&pv.ObjectMeta, boundByController, "yes")
		}
		pv.Status.Phase = corev1.VolumeBound
	})
	s.editPVC(p, func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeName = d.pv.Name
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, bindCompleted, "yes")
		p.Status.Phase = corev1.ClaimBound
	})
}

func reference(p *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// controlPV is the PV controller's and the provisioner's part for a volume.
func (s *state) controlPV(d *disk, add adder) {
	pv := d.pv
	switch {
	case pv.Spec.ClaimRef == nil && pv.Status.Phase != corev1.VolumeAvailable:
		add("PV controller finds "+pv.Name+" Available", func(s *state) {
			s.editPV(d, func(pv *corev1.PersistentVolume) {
				pv.Status.Phase = corev1.VolumeAvailable
				delete(pv.Annotations, boundByController)
			})
		})
	case pv.Spec.ClaimRef != nil && pv.Status.Phase != corev1.VolumeReleased && s.unclaimed(pv):
		add("PV controller releases "+pv.Name, func(s *state) {
			s.editPV(d, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased })
		})
	}
	if pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && !d.destroyed {
		add("provisioner destroys the storage of "+pv.Name, func(s *state) {
			s.truth(d, func(d *disk) { d.destroyed = true })
		})
	}
	if d.destroyed {
		add("provisioner deletes "+pv.Name, func(s *state) { s.dropDisk(d) })
	} else if pv.DeletionTimestamp != nil && pv.Status.Phase != corev1.VolumeBound {
		add("pv-protection lets "+pv.Name+" go", func(s *state) { s.dropDisk(d) })
	}
}

// unclaimed says that the claim that a volume names does not exist, or is bound
// to another volume.
func (s *state) unclaimed(pv *corev1.PersistentVolume) bool {
	p := s.pvcByUID(pv.Spec.ClaimRef.UID)
	return p == nil || (p.Spec.VolumeName != "" && p.Spec.VolumeName != pv.Name)
}

// provision begins a volume for a prime. Claims with a data source that it does
// not know a provisioner leaves alone.
func (s *state) provision(p *corev1.PersistentVolumeClaim, add adder) {
	if p.Spec.DataSourceRef != nil || p.Spec.VolumeName != "" || p.DeletionTimestamp != nil {
		return
	}
	if (s.sc.WaitForConsumer || s.sc.Immediately) && p.Annotations[selectedNode] == "" {
		return
	}
	busy := slices.ContainsFunc(s.inflight, func(f provisioning) bool { return f.claim == p.UID }) ||
		slices.ContainsFunc(s.vols, func(d *disk) bool { return d.pv.Spec.ClaimRef != nil && d.pv.Spec.ClaimRef.UID == p.UID })
	if !busy {
		add("provisioner begins for "+p.Name, func(s *state) {
			s.inflight = append(s.inflight, provisioning{claim: p.UID, namespace: p.Namespace, name: p.Name})
		})
	}
}

// finishProvisioning makes the volume, whether or not its claim is still about.
func (s *state) finishProvisioning(f provisioning) {
	s.inflight = slices.DeleteFunc(s.inflight, func(x provisioning) bool { return x == f })
	pv := newPV("pv-"+string(f.claim), s.sc.policy())
	pv.CreationTimestamp = s.stamp()
	s.sc.place(pv)
	if p := s.pvcByUID(f.claim); p != nil {
		pv.Spec.AccessModes = p.Spec.AccessModes
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: f.namespace, Name: f.name, UID: f.claim,
	}
	s.addDisk(&disk{pv: pv})
}

// protectPVC lets a deleted claim go when no Pod with a node names it, and
// nothing else holds it.
func (s *state) protectPVC(p *corev1.PersistentVolumeClaim, add adder) {
	if p.DeletionTimestamp == nil || held(p) || awaitsPlugin(p) {
		return
	}
	for _, pod := range s.pods {
		if pod.Spec.NodeName != "" && pod.Namespace == p.Namespace && names(pod, p.Name) {
			return
		}
	}
	add("pvc-protection lets "+p.Name+" go", func(s *state) { s.dropPVC(p) })
}

// names says that a Pod has a claim among its volumes.
func names(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// selectNode is the scheduler's choice for the claim's consumer.
func (s *state) selectNode(p *corev1.PersistentVolumeClaim, add adder) {
	if s.sc.WaitForConsumer && !isPrime(p) && p.DeletionTimestamp == nil && p.Spec.VolumeName == "" && p.Annotations[selectedNode] == "" {
		add("scheduler selects a node for "+p.Name, func(s *state) {
			s.editPVC(p, func(p *corev1.PersistentVolumeClaim) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, selectedNode, "node-1")
			})
		})
	}
}

// schedule gives a worker its node, once its prime is Bound; before that it
// chooses the node that the prime is provisioned for.
func (s *state) schedule(pod *corev1.Pod, add adder) {
	p := s.pvc(pod.Namespace, claimNamed(pod))
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || p == nil || p.DeletionTimestamp != nil {
		return
	}
	switch {
	case p.Spec.VolumeName != "" && p.Status.Phase == corev1.ClaimBound:
		add("scheduler binds worker "+pod.Name, func(s *state) {
			s.editPod(pod, func(p *corev1.Pod) { p.Spec.NodeName = "node-1"; p.Status.Phase = corev1.PodPending })
		})
	case p.Annotations[selectedNode] == "" && (s.sc.WaitForConsumer || s.sc.Immediately):
		add("scheduler selects a node for "+p.Name, func(s *state) {
			s.editPVC(p, func(p *corev1.PersistentVolumeClaim) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, selectedNode, "node-1")
			})
		})
		for _, d := range s.vols {
			if available(d) && serves(d.pv, p) && p.Spec.VolumeName == "" {
				add("scheduler matches "+p.Name+" with "+d.pv.Name, func(s *state) { s.bind(p, d, true) })
			}
		}
	}
}

// claimNamed is the claim among a Pod's volumes.
func claimNamed(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// mounts says that a container of a Pod mounts a volume of the kind that is
// asked for. The kubelet looks at no other volumes.
func mounts(pod *corev1.Pod, is func(corev1.VolumeSource) bool) bool {
	for _, v := range pod.Spec.Volumes {
		if !is(v.VolumeSource) {
			continue
		}
		for i := range pod.Spec.Containers {
			if slices.ContainsFunc(pod.Spec.Containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
				return true
			}
		}
	}
	return false
}

func ofClaim(v corev1.VolumeSource) bool { return v.PersistentVolumeClaim != nil }

// ofFiles is a ConfigMap. There are none in the model.
func ofFiles(v corev1.VolumeSource) bool { return v.ConfigMap != nil }

func isScout(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleScout }

// kubelet starts, ends, stops and removes workers.
func (s *state) kubelet(pod *corev1.Pod, add adder) {
	if pod.Spec.NodeName == "" {
		return
	}
	st := containerState(pod)
	switch {
	case disruption(pod) == taintManager:
		add("Pod garbage collector removes worker "+pod.Name, func(s *state) { s.dropPod(pod) })
	case pod.DeletionTimestamp != nil && st.Running != nil:
		// Told to stop, a program may well end with 0.
		for _, code := range []int32{143, 0} {
			add(fmt.Sprintf("kubelet stops worker %s, code %d", pod.Name, code), func(s *state) { s.endWorker(pod, code, false) })
		}
	case pod.DeletionTimestamp != nil:
		add("kubelet removes worker "+pod.Name, func(s *state) { s.dropPod(pod) })
	case st.Running != nil && s.sc.AlwaysFails:
		add("worker "+pod.Name+" fails", func(s *state) { s.endWorker(pod, 1, false) })
	case st.Running != nil:
		add("worker "+pod.Name+" succeeds", func(s *state) { s.endWorker(pod, 0, true) })
	case st.Terminated == nil && pod.Status.Phase == corev1.PodPending && !mounts(pod, ofFiles):
		// The kubelet starts no Pod whose claim is being deleted, and none that
		// mounts a ConfigMap which does not exist.
		if p := s.pvc(pod.Namespace, claimNamed(pod)); p != nil && p.DeletionTimestamp == nil && p.Spec.VolumeName != "" {
			if d := s.disk(p.Spec.VolumeName); d != nil && !d.destroyed {
				add("kubelet starts worker "+pod.Name, func(s *state) { s.startWorker(pod, d) })
			}
		}
	}
}

func containerState(pod *corev1.Pod) corev1.ContainerState {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerState{}
	}
	return pod.Status.ContainerStatuses[0].State
}

func (s *state) startWorker(pod *corev1.Pod, d *disk) {
	s.editPod(pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  v1alpha1.WorkerContainer,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.stamp()}},
		}}
	})
	s.truth(d, func(d *disk) { d.writers = append(d.writers, pod.UID) })
}

func (s *state) endWorker(pod *corev1.Pod, code int32, done bool) {
	s.editPod(pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  v1alpha1.WorkerContainer,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: s.stamp()}},
		}}
	})
	if !done {
		return
	}
	for _, d := range s.vols {
		if len(d.writers) > 0 && d.writers[0] == pod.UID {
			s.truth(d, func(d *disk) { d.filled = true })
		}
	}
}

// collect is the garbage collector: what has lost its owner is deleted.
func (s *state) collect(add adder) {
	for _, p := range s.pvcs {
		if p.DeletionTimestamp == nil && s.orphan(p) {
			add("garbage collector deletes prime "+p.Name, func(s *state) { s.deletePVC(p) })
		}
	}
	for _, p := range s.pods {
		if p.DeletionTimestamp == nil && s.orphan(p) {
			add("garbage collector deletes worker "+p.Name, func(s *state) { s.deletePod(p) })
		}
	}
	if s.pop != nil && s.orphan(s.pop) {
		add("garbage collector deletes the Population", func(s *state) { s.pop = nil })
	}
}

func (s *state) orphan(o metav1.Object) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && s.pvcByUID(ref.UID) == nil
}

// claimUIDs are the UIDs that the manager has reason to look at.
func (s *state) claimUIDs() []types.UID {
	var out []types.UID
	add := func(uid string) {
		if uid != "" && !slices.Contains(out, types.UID(uid)) {
			out = append(out, types.UID(uid))
		}
	}
	if c := s.claim(); c != nil {
		add(string(c.UID))
	}
	if s.pop != nil {
		add(string(s.pop.Spec.ClaimUID))
	}
	for _, p := range s.pvcs {
		add(p.Labels[v1alpha1.LabelClaimUID])
	}
	for _, p := range s.pods {
		add(p.Labels[v1alpha1.LabelClaimUID])
	}
	for _, d := range s.vols {
		add(d.pv.Labels[v1alpha1.LabelClaimUID])
		if ref := d.pv.Spec.ClaimRef; ref != nil {
			if uid, ok := claimOf(ref.Name); ok {
				add(uid)
			}
		}
	}
	return out
}
