package affinity

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

// Decision is what to do about one observation: look at it live, or take one
// step, or wait.
type Decision struct {
	// NeedLive asks for a live observation; nothing is written before that.
	NeedLive bool

	// Step is the one write to make now; nil when there is nothing to write.
	Step Step

	// Event is to be told on the change, and on the volume's claim, once Step
	// has succeeded.
	Event *Event

	// RequeueAfter, when set, asks for another look even if nothing changes.
	RequeueAfter time.Duration

	// Why is the line of the state table that decided: a short constant.
	Why string
}

// Event is one event.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type, Reason, Message string
}

// Step is one write. Each carries its own preconditions, so that a stale or
// late writer does nothing rather than something wrong.
//
//sumtype:decl
type Step interface{ step() }

// WriteStatus replaces the status of the change. Preconditions: UID and
// resourceVersion.
type WriteStatus struct {
	Status change.Status
}

// SetFinalizer adds or removes the finalizer that keeps a journal from being
// deleted while a volume is narrowed. Preconditions: UID and resourceVersion.
type SetFinalizer struct{ Present bool }

// DeleteChange deletes an ended change. Preconditions: UID and resourceVersion.
type DeleteChange struct{}

// CreateMark creates the mark of the volume: the Lease MarkName(VolumeUID), held
// by the change, its annotation saying the target. AlreadyExists is another
// observation, no error.
type CreateMark struct {
	VolumeUID types.UID
	// Target is the affinity that bindings must keep to; nil: no node at all.
	Target *corev1.VolumeNodeAffinity
}

// DeleteMark releases the mark. Preconditions: UID.
type DeleteMark struct {
	Name string
	UID  types.UID
}

// TouchPods changes the resourceVersion of Pods that are not bound: a condition
// that tells why they wait. One that is gone is no error. Then it writes Status,
// which says under which mark that was done.
type TouchPods struct {
	Pods   []types.NamespacedName
	Status change.Status
}

// WriteVolume writes affinity and zone labels, in one JSON patch, and nothing
// else. Preconditions: UID and resourceVersion.
type WriteVolume struct {
	Volume          string
	UID             types.UID
	ResourceVersion string
	// Affinity is the JSON of spec.nodeAffinity; empty removes it.
	Affinity string
	// Labels are those to change: an empty value removes the label.
	Labels map[string]string
}

// SetClass writes a claim's volumeAttributesClassName (KEP-3751).
// Preconditions: UID and resourceVersion.
type SetClass struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Class is the class; nil removes it.
	Class *string
}

// EvictPod evicts a Pod by its eviction subresource. Preconditions: UID and
// resourceVersion.
type EvictPod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

func (WriteStatus) step()  {}
func (SetFinalizer) step() {}
func (DeleteChange) step() {}
func (CreateMark) step()   {}
func (DeleteMark) step()   {}
func (TouchPods) step()    {}
func (WriteVolume) step()  {}
func (SetClass) step()     {}
func (EvictPod) step()     {}
