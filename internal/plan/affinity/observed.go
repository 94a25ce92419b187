package affinity

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

// Observed is one observation of all that the next step of one change depends
// on. Objects are read-only.
type Observed struct {
	// Now is the time of the observation.
	Now time.Time

	// Live says that Change, Mark, Volume, Claim, Pods and Attachments were read
	// consistently from the API server, the lists last. Nothing is written to a
	// volume, and nothing counts as settled, on a cached observation.
	Live bool

	// Change is the transition in question.
	Change *change.Change

	// Volume is what stands under spec.volumeName; nil when there is none.
	Volume *corev1.PersistentVolume

	// Claim is the claim in the volume's claimRef, if it is that very one.
	Claim *corev1.PersistentVolumeClaim

	// Nodes are all nodes of the cluster.
	Nodes []Node

	// Pods are the Pods of the claim's namespace that use the claim, by name or
	// as a generic ephemeral volume.
	Pods []corev1.Pod

	// Attachments are the VolumeAttachments of the volume.
	Attachments []storagev1.VolumeAttachment

	// AttachRequired says that the volume's driver attaches: what is not
	// attached cannot be in use.
	AttachRequired bool

	// Mark is the Lease of the volume's UID, whoever holds it.
	Mark *coordinationv1.Lease

	// Gate is what the last probe of the gate said.
	Gate Gate

	// Refused is why the API server refused this manager's last write for this
	// change; zero when it did not.
	Refused Refusal
}

// Node is what a change knows of a node.
type Node struct {
	Name   string
	Labels map[string]string
	// Alive says that the node's Lease is fresh: what the API server says of its
	// Pods is what its kubelet says.
	Alive bool
}

// Gate is whether bindings are checked.
type Gate struct {
	// InForce says that a probe was refused or amended as the gate does.
	InForce bool
	// Coverage says what the gate does not cover, for people.
	Coverage string
}

// Refusal is a write that the API server refused for good reason.
type Refusal struct {
	// Reason is GateDisabled where node affinity is immutable, else the API's
	// own word.
	Reason  string
	Message string
	At      time.Time
}
