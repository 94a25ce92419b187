// Package change is the record of one change of a volume's node affinity
// (KEP-5381): the wish, the plan, the journal, the result. Its fields become
// those of the kind NodeAffinityChange when a controller serves that; until
// then no cluster knows it.
//
// +kubebuilder:object:generate=true
package change

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change is one transition of the node affinity of one volume
// (KEP-5381), and its journal: what it was, what it becomes, how far it is. A
// person makes it, a NodeAffinityPolicy, or the interposer beside a CSI driver.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the volume is to be reachable from, and how to get there.
	// +required
	Spec Spec `json:"spec"`

	// status is the plan and the journal.
	// +optional
	Status Status `json:"status,omitempty"`
}

// Spec is the wish. What it changes cannot be edited; how it
// goes on can.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeAffinity) != has(self.anyNode)",message="exactly one of nodeAffinity and anyNode must be set"
// +kubebuilder:validation:XValidation:rule="self.volumeName == oldSelf.volumeName && self.storage == oldSelf.storage && has(self.nodeAffinity) == has(oldSelf.nodeAffinity) && (!has(self.nodeAffinity) || self.nodeAffinity == oldSelf.nodeAffinity) && has(self.volumeAttributesClassName) == has(oldSelf.volumeAttributesClassName) && (!has(self.volumeAttributesClassName) || self.volumeAttributesClassName == oldSelf.volumeAttributesClassName)",message="volumeName, nodeAffinity, anyNode, storage and volumeAttributesClassName cannot be changed; create another Change"
// +kubebuilder:validation:XValidation:rule="!has(self.storageMoved) || !self.storageMoved || self.storage == 'MovesAfterNarrowing'",message="storageMoved has a meaning with storage MovesAfterNarrowing only"
// +kubebuilder:validation:XValidation:rule="!has(self.volumeAttributesClassName) || self.storage == 'MovesAfterNarrowing'",message="volumeAttributesClassName needs storage MovesAfterNarrowing: Sluice itself has the storage moved by changing the class"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.requester) || (has(self.requester) && self.requester == oldSelf.requester)",message="requester cannot be changed"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Aborted' || self.state == 'Aborted'",message="a change that was aborted stays so; create another Change"
type Spec struct {
	// volumeName is the PersistentVolume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VolumeName string `json:"volumeName"`

	// nodeAffinity is what the volume's spec.nodeAffinity becomes.
	// +optional
	NodeAffinity *corev1.VolumeNodeAffinity `json:"nodeAffinity,omitempty"`

	// anyNode removes the volume's affinity: every node reaches it.
	// +optional
	// +kubebuilder:validation:Enum=true
	AnyNode bool `json:"anyNode,omitempty"`

	// storage says when the storage itself moves.
	// +optional
	// +kubebuilder:default=AlreadyMoved
	Storage StorageMove `json:"storage,omitempty"`

	// storageMoved, set to true by whoever moves the storage, lets a change with
	// storage MovesAfterNarrowing go on.
	// +optional
	StorageMoved bool `json:"storageMoved,omitempty"`

	// volumeAttributesClassName has Sluice move the storage: it writes this
	// class to the volume's claim once the affinity is narrowed and settled, and
	// goes on when the volume has that class (KEP-3751).
	// +optional
	// +kubebuilder:validation:MinLength=1
	VolumeAttributesClassName *string `json:"volumeAttributesClassName,omitempty"`

	// runningPods says what becomes of Pods that run on nodes which the volume
	// will no longer be reachable from.
	// +optional
	// +kubebuilder:default=Block
	RunningPods RunningPods `json:"runningPods,omitempty"`

	// zoneLabels says what becomes of the volume's zone label if the target
	// spans several zones.
	// +optional
	// +kubebuilder:default=Remove
	ZoneLabels ZoneLabels `json:"zoneLabels,omitempty"`

	// approved false stops at the plan: nothing is written to the volume.
	// +optional
	// +kubebuilder:default=true
	Approved *bool `json:"approved,omitempty"`

	// state lets a change rest or gives it up. One that is given up ends in the
	// old affinity, if the storage has not moved.
	// +optional
	// +kubebuilder:default=Active
	State State `json:"state,omitempty"`

	// rescue says which Pods may be removed that were bound, never started and
	// cannot reach the volume.
	// +optional
	// +kubebuilder:default=Owned
	Rescue Rescue `json:"rescue,omitempty"`

	// ttlSecondsAfterFinished is how long an ended change is kept. Default: a
	// week.
	// +optional
	// +kubebuilder:default=604800
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// requester is who made the change; admission writes it.
	// +optional
	Requester *Requester `json:"requester,omitempty"`
}

// StorageMove says when the storage of a volume moves.
//
// +kubebuilder:validation:Enum=AlreadyMoved;MovesAfterNarrowing
type StorageMove string

// The ways of moving storage.
const (
	// StorageAlreadyMoved: the target is what the storage can serve now.
	StorageAlreadyMoved StorageMove = "AlreadyMoved"
	// StorageMovesAfterNarrowing: the storage moves once no Pod can be on a node
	// that it will no longer serve.
	StorageMovesAfterNarrowing StorageMove = "MovesAfterNarrowing"
)

// RunningPods says what becomes of Pods in the way of a change.
//
// +kubebuilder:validation:Enum=Block;Drain;Evict
type RunningPods string

// What becomes of Pods in the way.
const (
	// RunningPodsBlock: they are left alone, and the change waits for them
	// without restricting anybody.
	RunningPodsBlock RunningPods = "Block"
	// RunningPodsDrain: they run to their end, and none is let in after them.
	RunningPodsDrain RunningPods = "Drain"
	// RunningPodsEvict: they are evicted, as PodDisruptionBudgets allow.
	RunningPodsEvict RunningPods = "Evict"
)

// ZoneLabels says what becomes of a zone label that can no longer name one zone.
//
// +kubebuilder:validation:Enum=Remove;Join
type ZoneLabels string

// What becomes of zone labels.
const (
	// ZoneLabelsRemove: the label goes, the affinity says it better.
	ZoneLabelsRemove ZoneLabels = "Remove"
	// ZoneLabelsJoin: the label lists the zones, as in a__b, where that fits.
	ZoneLabelsJoin ZoneLabels = "Join"
)

// State says whether a change goes on.
//
// +kubebuilder:validation:Enum=Active;Paused;Aborted
type State string

// The states of a change.
const (
	Active  State = "Active"
	Paused  State = "Paused"
	Aborted State = "Aborted"
)

// Rescue says which stranded Pods may be removed.
//
// +kubebuilder:validation:Enum=None;Owned;All
type Rescue string

// Which stranded Pods may be removed.
const (
	// RescueNone: they are reported only.
	RescueNone Rescue = "None"
	// RescueOwned: those whose owner makes new ones.
	RescueOwned Rescue = "Owned"
	// RescueAll: bare Pods, too, which nobody makes again.
	RescueAll Rescue = "All"
)

// Requester is who asked for a change, as the API server saw them.
type Requester struct {
	// username of the request that created the change.
	// +required
	Username string `json:"username"`
}

// Phase is where a change is.
//
// +kubebuilder:validation:Enum=Planned;Blocked;Paused;Fencing;Settling;StorageMoving;Restoring;RestoreBlocked;Succeeded;Aborted;Failed
type Phase string

// The phases of a change.
const (
	// PhasePlanned: the plan is there and waits for approval.
	PhasePlanned Phase = "Planned"
	// PhaseBlocked: something is in the way; nobody is restricted meanwhile.
	PhaseBlocked Phase = "Blocked"
	// PhasePaused: it rests where it is.
	PhasePaused Phase = "Paused"
	// PhaseFencing: from the mark to the write, no Pod is bound outside.
	PhaseFencing Phase = "Fencing"
	// PhaseSettling: the volume is narrowed; what was outside has to be gone.
	PhaseSettling Phase = "Settling"
	// PhaseStorageMoving: the affinity is safe for both; the storage may move.
	PhaseStorageMoving Phase = "StorageMoving"
	// PhaseRestoring: the old affinity is being written back.
	PhaseRestoring Phase = "Restoring"
	// PhaseRestoreBlocked: the API server refuses the last write; the volume
	// stays narrowed, which is safe.
	PhaseRestoreBlocked Phase = "RestoreBlocked"
	// PhaseSucceeded: the volume has the target.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseAborted: the volume has its old affinity.
	PhaseAborted Phase = "Aborted"
	// PhaseFailed: it cannot be done, or somebody else changed the volume. What
	// the volume has is left as it is.
	PhaseFailed Phase = "Failed"
)

// Kind is how a target relates to what the volume has.
//
// +kubebuilder:validation:Enum=None;Widen;Narrow;Move
type Kind string

// The kinds of change.
const (
	// None: the same nodes, whatever the words.
	None Kind = "None"
	// Widen: all nodes of before, and more.
	Widen Kind = "Widen"
	// Narrow: some nodes of before.
	Narrow Kind = "Narrow"
	// Move: nodes are gained and lost.
	Move Kind = "Move"
)

// SettledBy says how it was made sure that no Pod is bound outside.
//
// +kubebuilder:validation:Enum=Fence;Wait;None
type SettledBy string

// The ways of settling.
const (
	// SettledByFence: the gate was in force and every Pod that was not bound yet
	// was touched; none can be bound outside afterwards.
	SettledByFence SettledBy = "Fence"
	// SettledByWait: the gate was not in force. Pods that were being bound had
	// time to appear; that none comes later is likely, not certain.
	SettledByWait SettledBy = "Wait"
	// SettledByNone: nothing was narrowed.
	SettledByNone SettledBy = "None"
)

// Status is the plan, the journal and the result.
type Status struct {
	// observedGeneration is the generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is where the change is.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// kind is how the target relates to what the volume had.
	// +optional
	Kind Kind `json:"kind,omitempty"`

	// settledBy says how far the promise goes that no Pod is stranded.
	// +optional
	SettledBy SettledBy `json:"settledBy,omitempty"`

	// gateCoverage says what the gate does not cover; empty when it is in force
	// for every namespace that matters.
	// +optional
	GateCoverage string `json:"gateCoverage,omitempty"`

	// plan says what the change does, counted at the last look before it began.
	// +optional
	Plan *Plan `json:"plan,omitempty"`

	// blockers are the first things in the way, sorted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Blockers []Blocker `json:"blockers,omitempty"`

	// blockerCount is how many there are in all.
	// +optional
	BlockerCount int32 `json:"blockerCount,omitempty"`

	// journal is what the volume had and what is written, from before the first
	// write to it.
	// +optional
	Journal *Journal `json:"journal,omitempty"`

	// holder is who moves the storage at this moment, if the interposer does.
	// +optional
	Holder string `json:"holder,omitempty"`

	// completedAt is when the change ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// conditions: Complete.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Plan is what a change does, in numbers and steps.
type Plan struct {
	// nodesKept, nodesGained and nodesLost count the nodes that exist.
	NodesKept   int32 `json:"nodesKept"`
	NodesGained int32 `json:"nodesGained"`
	NodesLost   int32 `json:"nodesLost"`

	// podsAffected counts the Pods that run on nodes which are lost.
	PodsAffected int32 `json:"podsAffected"`

	// steps are the steps in their order, one line each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Steps []string `json:"steps,omitempty"`

	// notes are what to know before approving, one line each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Notes []string `json:"notes,omitempty"`
}

// Blocker is one thing in the way of a change.
type Blocker struct {
	// kind is Pod, VolumeAttachment or Node.
	// +required
	Kind string `json:"kind"`
	// namespace of a Pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +required
	Name string `json:"name"`
	// node that it is on.
	// +optional
	Node string `json:"node,omitempty"`
	// message says why it is in the way.
	// +required
	Message string `json:"message"`
}

// Journal is what a crash resumes from and a rollback restores. It is
// written before each write to the volume.
type Journal struct {
	// volumeUID is the volume that all this is about.
	// +required
	VolumeUID types.UID `json:"volumeUID"`

	// from is the JSON of the volume's spec.nodeAffinity before the first write,
	// byte for byte; empty if there was none.
	// +optional
	From string `json:"from,omitempty"`

	// fromLabels are the volume's zone and region labels before the first write.
	// +optional
	FromLabels map[string]string `json:"fromLabels,omitempty"`

	// fromClass is the claim's VolumeAttributesClass before Sluice changed it.
	// +optional
	FromClass *string `json:"fromClass,omitempty"`

	// stage is the last write that was begun.
	// +required
	Stage Stage `json:"stage"`

	// before and beforeLabels are what the volume has until that write, after
	// and afterLabels what it has from then on. Anything else is somebody
	// else's edit.
	// +optional
	Before string `json:"before,omitempty"`
	// +optional
	BeforeLabels map[string]string `json:"beforeLabels,omitempty"`
	// +optional
	After string `json:"after,omitempty"`
	// +optional
	AfterLabels map[string]string `json:"afterLabels,omitempty"`

	// markUID is the mark under which every Pod that was not bound was touched.
	// +optional
	MarkUID types.UID `json:"markUID,omitempty"`

	// writtenAt is when the volume was first seen with what stage speaks of.
	// +optional
	WrittenAt *metav1.Time `json:"writtenAt,omitempty"`

	// settledAt is when nothing was outside any more.
	// +optional
	SettledAt *metav1.Time `json:"settledAt,omitempty"`

	// classSeenAt is when the claim was first seen with the class that moves the
	// storage.
	// +optional
	ClassSeenAt *metav1.Time `json:"classSeenAt,omitempty"`

	// storageFailed says why the storage did not move, if it did not.
	// +optional
	StorageFailed string `json:"storageFailed,omitempty"`

	// storageMovedAt is when the storage was first seen moved.
	// +optional
	StorageMovedAt *metav1.Time `json:"storageMovedAt,omitempty"`
}

// DefaultTTL is how long an ended change is kept, in seconds: a week.
const DefaultTTL = 604800

// Stage is a write to the volume.
//
// +kubebuilder:validation:Enum=Begun;Narrowing;Target;Restore
type Stage string

// The stages of a journal.
const (
	// StageBegun: nothing was written yet.
	StageBegun Stage = "Begun"
	// StageNarrowing: the nodes that old and new have in common.
	StageNarrowing Stage = "Narrowing"
	// StageTarget: the target.
	StageTarget Stage = "Target"
	// StageRestore: what was before.
	StageRestore Stage = "Restore"
)
