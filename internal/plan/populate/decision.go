package populate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Decision is what to do about one observation: deepen it, or take one step,
// or wait. At most one of Need and Step is set.
type Decision struct {
	// Need, when set, asks for the same observation in more depth; nothing is
	// written before that.
	Need Need

	// Step is the one write or call to make now; nil when there is none.
	Step Step

	// Event is to be told on the claim once Step has succeeded, and only then: a
	// Warning or wait is repeated only when its reason changes, which the
	// Population's Ready condition remembers. Without a Step it tells of a
	// refusal, and the caller remembers that in Refusal.Told.
	Event *Event

	// RequeueAfter, when set, asks for another look after this time even if
	// nothing changes: a back-off or a deadline.
	RequeueAfter time.Duration

	// Why is the line of the state table that decided, for logs, the explorer
	// and explain: a short constant.
	Why string
}

// Need is a depth of observation. Needs may be combined.
type Need uint8

// The needs.
const (
	// NeedLive asks for Observed.Live.
	NeedLive Need = 1 << iota
	// NeedRender asks for Observed.Rendered.
	NeedRender
	// NeedSlot asks for Observed.Slot.
	NeedSlot
)

// Event is one event on the claim.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type, Reason, Message string
}

// Step is one write, or one call of a plugin. Each write carries its own
// preconditions, so that a stale or late writer does nothing rather than
// something wrong; and every call can be repeated.
//
//sumtype:decl
type Step interface{ step() }

// Kind names the kind of a step, for Refusal.Step.
func Kind(s Step) string { return fmt.Sprintf("%T", s) }

// CreatePopulation creates the record of a claim: attempt 0 where the claim has
// to wait, 1 where it need not, more where temporaries of a lost record are
// about. The nonce is left empty, for the writer to fill with a random word.
// AlreadyExists is another observation, no error.
type CreatePopulation struct{ Population *v1alpha1.Population }

// DeletePopulation deletes a Population of another claim UID or not of our
// making. Preconditions: UID.
type DeletePopulation struct {
	Namespace, Name string
	UID             types.UID
}

// Allocate raises spec.attempt to To, the token of the attempt: by one, or by
// more where temporaries of a lost record bear higher numbers. Where the
// temporaries live is part of the token.
// Preconditions: UID and resourceVersion.
type Allocate struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	To              int32
	// Temporaries is the namespace that the attempt's temporaries are to live in;
	// empty is the claim's.
	Temporaries string
}

// WriteStatus replaces the Population's status. Preconditions: UID and
// resourceVersion.
type WriteStatus struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Status          v1alpha1.PopulationStatus
}

// CreatePrime creates the second claim.
type CreatePrime struct {
	Prime *corev1.PersistentVolumeClaim
}

// CreateScout creates the Pod by which a scheduler chooses the prime's node. It
// writes to nothing, so there is no record of it.
type CreateScout struct {
	Scout *corev1.Pod
}

// CreateWorker writes the Record, then creates the ConfigMap of files, if there
// is one, then the worker. Unless the Record was written nothing is created:
// it is the durable word that a worker of this attempt may exist, which lets a
// worker that vanished be told from one that was never made.
type CreateWorker struct {
	Record WriteStatus
	Files  *corev1.ConfigMap
	Worker *corev1.Pod
}

// DeletePrime deletes a prime, in the background. Preconditions: UID, and
// ResourceVersion where set.
type DeletePrime struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// DeleteWorker deletes a worker or a scout. Preconditions: UID, and ResourceVersion where
// set.
type DeleteWorker struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// Rebind hands a filled volume over: claimRef is replaced whole, the labels are
// added, and the access modes replaced where they must change, all in one
// patch. Preconditions: UID and resourceVersion of the live read that showed
// it Bound to the prime.
type Rebind struct {
	Volume          string
	UID             types.UID
	ResourceVersion string
	ClaimRef        corev1.ObjectReference
	AccessModes     []corev1.PersistentVolumeAccessMode
	// Labels say on the volume itself, where no tenant can write, that it was
	// handed over filled, to which claim UID and by which attempt.
	Labels map[string]string
}

// SetReclaimPolicy changes a volume's reclaim policy: to Delete for a volume
// that was never handed over, to Retain for somebody else's volume before our
// prime goes, and back afterwards. Preconditions: UID and resourceVersion.
type SetReclaimPolicy struct {
	Volume          string
	UID             types.UID
	ResourceVersion string
	Policy          corev1.PersistentVolumeReclaimPolicy
	// Labels are changed in the same patch: an empty value removes the label.
	Labels map[string]string
}

// LabelVolume changes labels of a volume: an empty value removes the label.
// Preconditions: UID and resourceVersion.
type LabelVolume struct {
	Volume          string
	UID             types.UID
	ResourceVersion string
	Labels          map[string]string
}

// ReleaseForeign removes our prime's claimRef from somebody else's volume, so
// that it is Available again. Preconditions: UID and resourceVersion.
type ReleaseForeign struct {
	Volume          string
	UID             types.UID
	ResourceVersion string
}

// ReleasePrime takes FinalizerPlugin from a prime that is being deleted;
// Finalizers are those that remain. Preconditions: UID and resourceVersion.
type ReleasePrime struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Finalizers      []string
}

// UnselectNode removes the selected-node annotation from the claim, so that the
// scheduler chooses again. Preconditions: UID and resourceVersion.
type UnselectNode struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// SetFinalizer adds or removes FinalizerPopulation on the claim. Preconditions:
// UID and resourceVersion.
type SetFinalizer struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Present         bool
}

func (CreatePopulation) step() {}
func (DeletePopulation) step() {}
func (Allocate) step()         {}
func (WriteStatus) step()      {}
func (CreatePrime) step()      {}
func (CreateScout) step()      {}
func (CreateWorker) step()     {}
func (DeletePrime) step()      {}
func (DeleteWorker) step()     {}
func (Rebind) step()           {}
func (SetReclaimPolicy) step() {}
func (LabelVolume) step()      {}
func (ReleaseForeign) step()   {}
func (ReleasePrime) step()     {}
func (UnselectNode) step()     {}
func (SetFinalizer) step()     {}
