package populate

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A claim of a class that waits for a consumer, to be filled before it has one,
// lacks a node to make its volume for. Sluice is no scheduler, so it has one
// choose, by a scout: a Pod with the demands of the worker, which has the prime
// among its volumes. The scheduler looks at a Pod's volumes, the kubelet only at
// those that a container mounts, and no container of a scout mounts the prime.
// So whatever volume the scheduler gives to it, somebody's Available one
// included, is neither formatted nor mounted nor handed to a group before it was
// seen to be provisioned for the prime. Then the scout goes and the worker comes.

const (
	// ScoutContainer is the name of a scout's container. It is not the one that
	// a worker's success is judged by.
	ScoutContainer = "scout"

	// missingVolume is the name of a scout's volume of a ConfigMap that does not
	// exist: a kubelet starts no Pod that mounts one.
	missingVolume = "sluice-never"

	// missingPath is where it would be mounted, and what would be run.
	missingPath = "/sluice/never"
)

// ScoutName is the name of the scout of one attempt.
func ScoutName(claim types.UID, attempt int32) string {
	return namePrefix(claim) + v1alpha1.RoleScout + strconv.Itoa(int(attempt))
}

// scouting says that the node of the prime's volume is a scout's to find.
func (v *view) scouting() bool {
	return v.waitsForConsumer() && (v.immediately() || v.scout != nil)
}

// sendScout is the case of a prime that has no volume yet and may need a scout.
func (v *view) sendScout() Decision {
	switch {
	case v.scout != nil:
		return v.scoutPending()
	case v.prime.Spec.VolumeName != "" || v.prime.Annotations[annSelectedNode] != "":
		return v.primePending() // a node was found
	}
	if d, ok := v.mayCreate(CreateScout{}); !ok {
		return d
	}
	return Decision{Step: CreateScout{Scout: v.newScout()}, Why: WhyCreateScout}
}

// scoutPending is the case of a scout that looks for a node.
func (v *view) scoutPending() Decision {
	s := v.scout
	if s.DeletionTimestamp == nil && s.Status.Phase == corev1.PodFailed {
		// Evicted, or refused by its node. Another one may be needed.
		d, _ := v.deleteWorker(WhyScoutDone, s)
		return d
	}
	if d, ok := v.unschedulable(s, v1alpha1.PhaseProvisioning); ok {
		return d
	}
	return v.primePending()
}

// recallScout sees off the scout of a prime that has its volume, before the
// worker is made: the two would count twice against quotas, and a volume for one
// Pod alone would be in use.
func (v *view) recallScout() (Decision, bool) {
	if v.scout == nil {
		return Decision{}, false
	}
	if d, ok := v.deleteWorker(WhyScoutDone, v.scout); ok {
		return d, true
	}
	wait := v.left(terminatingPatience, v.scout.DeletionTimestamp.Time)
	return Decision{RequeueAfter: max(wait, time.Second), Why: WhyScoutDone}, wait > 0
}

// newScout is the rendered worker in everything that a scheduler looks at, and
// in nothing else.
func (v *view) newScout() *corev1.Pod {
	s := v.Rendered.Pod.DeepCopy()
	name := ScoutName(v.ClaimUID, v.n)
	v.identify(s, name, v1alpha1.RoleScout)
	v.asOwner(s, nil) // what refuses the worker is to refuse the scout

	c := corev1.Container{
		Name:    ScoutContainer,
		Command: []string{missingPath},
		VolumeMounts: []corev1.VolumeMount{
			{Name: missingVolume, MountPath: missingPath, ReadOnly: true},
		},
	}
	for i := range s.Spec.Containers {
		if w := &s.Spec.Containers[i]; w.Name == v1alpha1.WorkerContainer {
			c.Image, c.ImagePullPolicy, c.Resources, c.SecurityContext = w.Image, w.ImagePullPolicy, w.Resources, w.SecurityContext
		}
	}
	s.Spec.InitContainers, s.Spec.Containers = nil, []corev1.Container{c}
	s.Spec.ServiceAccountName, s.Spec.AutomountServiceAccountToken, s.Spec.ImagePullSecrets = "", ptr.To(false), nil
	s.Spec.Volumes = []corev1.Volume{
		targetVolume(v.name()),
		{Name: missingVolume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}},
	}
	s.Spec.ActiveDeadlineSeconds = nil
	return s
}

// unschedulable tells that a scheduler has found no node for a while.
func (v *view) unschedulable(p *corev1.Pod, phase v1alpha1.Phase) (Decision, bool) {
	c := noNode(p)
	if c == nil {
		return Decision{}, false
	}
	if wait := v.left(unschedulablePatience, c.LastTransitionTime.Time); wait > 0 {
		return Decision{RequeueAfter: wait, Why: WhyWorkerPending}, true
	}
	return v.say(WhyWorkerPending, 10*recheck, report{
		phase: phase, reason: v1alpha1.ReasonWorkerUnschedulable, event: warning,
		message: fmt.Sprintf("No node takes worker %q; make room for it, or correct what keeps it out: %s", p.Name, clean(c.Message)),
	}), true
}

// noNode is what the scheduler says of a Pod that it has found no node for.
func noNode(p *corev1.Pod) *corev1.PodCondition {
	c := podCondition(p, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}
