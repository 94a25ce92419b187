package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Population is the filling of one claim and its record. The manager makes it
// beside the claim, under the claim's name and owned by it, so that the first
// column of a table, NAME, is the claim; only the manager writes it. After success it stays as the volume's provenance.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=sluice
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Waiting, Provisioning, Populating, Binding, Succeeded or Failed"
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress.summary`,description="What was written, of how much, as far as it is known"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.source.summary`,description="What the claim is filled from, with its namespace if that is another one"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Rate",type=string,JSONPath=`.status.progress.rate`,priority=1,description="How fast it is written; after the end, on average"
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.spec.attempt`,priority=1,description="How many attempts were begun"
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.status.volumeName`,priority=1,description="The volume that is or was filled"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,priority=1,description="The node that the worker runs or ran on"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1,description="One word for where the claim is, as in its events"
// +kubebuilder:printcolumn:name="Moved",type=date,JSONPath=`.status.progress.updatedAt`,priority=1,description="When the figures last changed, as far as it was seen"
type Population struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the token of the running attempt.
	// +required
	Spec PopulationSpec `json:"spec"`

	// status is progress and, in the end, provenance.
	// +optional
	Status PopulationStatus `json:"status,omitempty"`
}

// PopulationList is a list of Populations.
//
// +kubebuilder:object:root=true
type PopulationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Population `json:"items"`
}

// PopulationSpec is written by the manager only. Its conditional update is what
// keeps two managers from running the same attempt.
//
// +kubebuilder:validation:XValidation:rule="size(self.claimUID) > 0",message="claimUID must be set"
// +kubebuilder:validation:XValidation:rule="self.claimUID == oldSelf.claimUID",message="claimUID cannot be changed"
// +kubebuilder:validation:XValidation:rule="self.attempt >= oldSelf.attempt",message="attempt never goes back"
type PopulationSpec struct {
	// claimUID is the UID of the claim that this is the population of.
	// +required
	ClaimUID types.UID `json:"claimUID"`

	// attempt is the number of the attempt that runs or ran last; 0 before the
	// first one.
	// +required
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt"`

	// nonce is a random word that the temporaries of this population repeat.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nonce cannot be changed"
	Nonce string `json:"nonce"`

	// namespace is where the temporaries of the attempt live. Empty is the
	// claim's own namespace. It is taken down with the attempt's number, so that
	// they are found again whatever becomes of the Populator's placement.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Phase is where a population is.
//
// +kubebuilder:validation:Enum=Waiting;Provisioning;Populating;Binding;Succeeded;Failed
type Phase string

// The phases, in order. A retry goes back to Provisioning by way of Waiting.
const (
	// PhaseWaiting: something is missing or not allowed; the Ready condition
	// says what.
	PhaseWaiting Phase = "Waiting"
	// PhaseProvisioning: the prime waits for its volume.
	PhaseProvisioning Phase = "Provisioning"
	// PhasePopulating: the worker runs.
	PhasePopulating Phase = "Populating"
	// PhaseBinding: the volume is filled and verified; the claim is being bound
	// to it.
	PhaseBinding Phase = "Binding"
	// PhaseSucceeded: the claim is Bound to the filled volume.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed: no further attempt is made until the source or its populator
	// changes.
	PhaseFailed Phase = "Failed"
)

// PopulationStatus is what a user watches, and what remains afterwards.
type PopulationStatus struct {
	// phase is where the population is.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// populator is the name of the Populator that serves the claim.
	// +optional
	Populator string `json:"populator,omitempty"`

	// source is the revision of the source that this attempt fills from.
	// +optional
	Source *SourceRevision `json:"source,omitempty"`

	// progress of the running attempt, or of the one that succeeded.
	// +optional
	Progress *Progress `json:"progress,omitempty"`

	// prime is the second claim of the running attempt.
	// +optional
	Prime *TemporaryReference `json:"prime,omitempty"`

	// fill is what the Populator's plugin was asked to do in the running attempt;
	// unset where a worker fills.
	// +optional
	Fill *PluginFill `json:"fill,omitempty"`

	// volumeName is the volume that is or was filled.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`

	// volumeUID is the UID of that volume.
	// +optional
	VolumeUID types.UID `json:"volumeUID,omitempty"`

	// nodeName is the node that the worker ran on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// result is the outcome of the last attempt that ended.
	// +optional
	Result *Result `json:"result,omitempty"`

	// startedAt is when the first attempt began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// completedAt is when the claim was seen Bound to the filled volume.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// conditions: Ready, SourceResolved, Populated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SourceRevision names one revision of a source.
type SourceRevision struct {
	// group of the source.
	Group string `json:"group"`
	// kind of the source.
	Kind string `json:"kind"`
	// namespace of the source.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the source.
	Name string `json:"name"`
	// uid of the source.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// generation of the source.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// digest of the data, if the worker reported one: algorithm:hex.
	// +optional
	Digest string `json:"digest,omitempty"`
	// summary is Kind/name, with the namespace in front where it is another
	// one than the claim's. For printing.
	// +optional
	Summary string `json:"summary,omitempty"`
}

// Progress counts what was written. It never goes backwards within an attempt.
// While a worker runs it is known only where the manager may read the logs of
// workers; in the end a worker's result tells it. The figures are a worker's
// own, within the capacity of its volume.
type Progress struct {
	// bytes written so far.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// totalBytes to write; 0 when unknown.
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// files written so far.
	// +optional
	Files int64 `json:"files,omitempty"`
	// bytesPerSecond is the rate since the last report, 0 when unknown or when
	// nothing moves; once the worker has ended, the average.
	// +optional
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// updatedAt is when the figures of a running worker were last seen to
	// change. They are read every 5 seconds, and less often where more than 100
	// workers run.
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`
	// summary is what tables show: 40Mi/100Mi 40%, or what there is of it.
	// +optional
	Summary string `json:"summary,omitempty"`
	// rate is bytesPerSecond as tables show it: 20Mi/s.
	// +optional
	Rate string `json:"rate,omitempty"`
}

// TemporaryReference names a temporary.
type TemporaryReference struct {
	// namespace of the temporary.
	Namespace string `json:"namespace"`
	// name of the temporary.
	Name string `json:"name"`
	// uid of the temporary.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// PluginFill is one filling of a volume by a plugin, without a worker.
type PluginFill struct {
	// id names the filling to the plugin: the UID of the prime.
	ID types.UID `json:"id"`
	// populator is the Populator whose plugin fills.
	Populator string `json:"populator"`
	// populatorGeneration is the generation of that Populator.
	// +optional
	PopulatorGeneration int64 `json:"populatorGeneration,omitempty"`
	// reclaimPolicy is that of the volume when the filling began.
	// +optional
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// startedAt is when the plugin was first asked to fill the volume.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
}

// Result is how an attempt ended.
type Result struct {
	// attempt that ended.
	Attempt int32 `json:"attempt"`
	// succeeded says whether the volume was filled and verified.
	Succeeded bool `json:"succeeded"`
	// reason of a failure, one of the reasons in the docs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the worker's own last words, shortened: untrusted text.
	// +optional
	Message string `json:"message,omitempty"`
	// exitCode of the worker container.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// permanent says that trying again cannot help.
	// +optional
	Permanent bool `json:"permanent,omitempty"`
	// sourceGeneration the attempt used; a later generation re-arms a failed
	// population.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`
	// populatorGeneration the attempt used.
	// +optional
	PopulatorGeneration int64 `json:"populatorGeneration,omitempty"`
	// failures is how many attempts in a row have failed, this one included,
	// since the source or its populator last changed.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// endedAt is when the end was observed.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
}
