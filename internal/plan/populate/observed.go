package populate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/slots"
)

// Observed is one observation of all that the next step for one claim depends
// on. Objects are read-only. What was not asked for is absent: Next says by
// Decision.Need when an observation must be deepened.
type Observed struct {
	// Now is the time of the observation.
	Now time.Time

	// Live says that every object below except Source, Populator and Class was
	// read from the API server, not from a cache. Steps that cannot be taken
	// back are decided on a live observation only.
	Live bool

	// Namespace, Name and ClaimUID are the claim in question. ClaimUID is set
	// also when the claim is gone and only temporaries remember it.
	Namespace, Name string
	ClaimUID        types.UID

	// System is the manager's own namespace.
	System string

	// Claim is the claim as it stands under that name: nil when gone, and with
	// another UID when it was made anew.
	Claim *corev1.PersistentVolumeClaim

	// Population is what stands under the claim's name, ours or not.
	Population *v1alpha1.Population

	// Populator serves the claim's source kind; nil when nobody of ours does.
	Populator *v1alpha1.Populator

	// RegisteredElsewhere says that a VolumePopulator which is not ours
	// registers the source kind: some other controller fills the claim.
	RegisteredElsewhere bool

	// Source is what the claim's dataSourceRef names.
	Source Source

	// Class is the claim's storage class; nil when it does not exist or the
	// claim names none.
	Class *storagev1.StorageClass

	// Driver is the CSIDriver of the class's provisioner; nil when there is none.
	Driver *storagev1.CSIDriver

	// Primes are all claims, and Workers all Pods, of any namespace that carry
	// the claim's UID in LabelClaimUID, scouts included, or stand under a name
	// that an attempt of this claim would use. Whether they are ours is for Next
	// to judge.
	Primes  []corev1.PersistentVolumeClaim
	Workers []corev1.Pod

	// Volumes are the volumes whose claimRef names the claim, one of the primes
	// or a name that an attempt of this claim would use, that one of these names
	// in spec.volumeName, or that carry the claim's UID in LabelClaimUID.
	Volumes []corev1.PersistentVolume

	// Consumers are the Pods of the claim's namespace that use the claim and
	// have no node yet. Only what they ask of a node is of interest.
	Consumers []corev1.Pod

	// Rendered is the worker that the Populator's template yields for this
	// attempt, or why it yields none; nil until asked for by NeedRender.
	Rendered *Rendered

	// Answers are what plugins answered to calls for this claim, as far as this
	// process remembers: none after a restart.
	Answers []Answer

	// PrimeProblem is the provisioner's or controller's newest Warning about
	// the current prime, WorkerProblem the scheduler's, kubelet's or admission's
	// about the current worker; empty when there is none.
	PrimeProblem  Problem
	WorkerProblem Problem

	// Reading is the newest that a running worker told of its progress; zero
	// when nothing is known.
	Reading Reading

	// Slot says whether the claim may be begun beside what else is being filled;
	// nil until asked for by NeedSlot.
	Slot *slots.Verdict

	// Refused is why the API server refused this manager's last write for this
	// claim, for example by quota or Pod Security; zero when it did not.
	Refused Refusal
}

// SourceState is what became of looking for a source.
type SourceState int

// The states of a source.
const (
	// SourceUnknown: not looked for, the claim names no source of ours.
	SourceUnknown SourceState = iota
	// SourceFound: Object's metadata is in Source.
	SourceFound
	// SourceNotFound: the API server answers that there is none.
	SourceNotFound
	// SourceKindNotReadable: the kind does not exist or may not be read.
	SourceKindNotReadable
)

// Source is what is known of a claim's source.
type Source struct {
	State      SourceState
	Namespace  string
	UID        types.UID
	Generation int64
	// Invalid is the message of the first validation that the source breaks.
	Invalid string
	// Granted says that a ReferenceGrant lets the claim refer to a source of
	// another namespace. Without meaning for one of its own namespace.
	Granted bool
	// Ungrantable is why there can be no grant: the API server's text about the
	// kind ReferenceGrant, which is not installed or must not be read. Empty where
	// grants are read.
	Ungrantable string
	// InvalidReason is InvalidSource, or TemplateFailed when the rule itself
	// could not be evaluated. Set whenever Invalid is.
	InvalidReason string
	// Detail is the API server's text for SourceKindNotReadable.
	Detail string
	// Objects are what the source names for its worker to mount.
	Objects []NamedObject
}

// NamedObject is a Secret or ConfigMap of the source's namespace, named by the
// source. It can be mounted in that namespace only.
type NamedObject struct{ Kind, Name string }

// Rendered is the outcome of rendering a worker template.
type Rendered struct {
	// Attempt that this was rendered for.
	Attempt int32
	// Pod is a complete worker but for what the planner owns: name, namespace,
	// labels, annotations and owner of its identity, the volume of the prime.
	Pod *corev1.Pod
	// Files is the ConfigMap data for file contents too large for a Pod; empty
	// when there are none.
	Files map[string][]byte
	// Objects are what the source names and the Pod mounts; the Pod may be made in
	// the source's namespace only if there are any.
	Objects []NamedObject
	// Reason and Message say why there is no Pod: one of the Template… reasons,
	// or what became of the source since it was observed.
	Reason, Message string
}

// Problem is a Warning event that Kubernetes wrote about a temporary.
type Problem struct {
	Reason, Message string
	At              time.Time
}

// Refusal is a write that the API server refused for good reason.
type Refusal struct {
	// Reason is one of the API's reasons: QuotaExceeded, PodSecurityRefused,
	// RequestRefused, NameTaken.
	Reason  string
	Message string
	At      time.Time
	// Told says that an event told of it, for lack of a Population that could.
	Told bool
	// Step is the kind of step that was refused, as Kind names it. A step of
	// that kind is not taken again for a while; and that a worker was never made
	// is believed only if it is this manager's last write that was refused.
	Step string
}
