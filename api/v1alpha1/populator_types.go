package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Populator says how claims whose dataSourceRef names one source kind are
// filled (KEP-1495). It is cluster-scoped and served only while its Accepted
// condition is True for its generation.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sluice
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.sourceKind.group`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.sourceKind.kind`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Populator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which claims are filled, and how.
	// +required
	Spec PopulatorSpec `json:"spec"`

	// status says whether this Populator is served.
	// +optional
	Status PopulatorStatus `json:"status,omitempty"`
}

// PopulatorList is a list of Populators.
//
// +kubebuilder:object:root=true
type PopulatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Populator `json:"items"`
}

// PopulatorSpec is the desired state of a Populator.
//
// +kubebuilder:validation:XValidation:rule="has(self.worker) != has(self.plugin)",message="exactly one of worker and plugin must be set"
type PopulatorSpec struct {
	// sourceKind is the kind that a claim's dataSourceRef names. It cannot be
	// changed; make a new Populator instead.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sourceKind cannot be changed; create a new Populator for another kind"
	SourceKind SourceKind `json:"sourceKind"`

	// validations are CEL rules over the source. A claim of a source that
	// breaks one gets reason InvalidSource with the rule's message, and no
	// worker.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Validations []Validation `json:"validations,omitempty"`

	// placement is the namespace that prime and worker live in. Auto, the
	// default, is the claim's namespace, or the source's where a source of another
	// namespace names Secrets or ConfigMaps. A change counts from the next attempt
	// of each claim on.
	// +optional
	// +kubebuilder:default=Auto
	Placement Placement `json:"placement,omitempty"`

	// worker is the template of the Pod that writes into the volume.
	// +optional
	Worker *WorkerTemplate `json:"worker,omitempty"`

	// plugin is the gRPC service (sluice.populator.v1) that fills the volume or
	// computes the worker.
	// +optional
	Plugin *Plugin `json:"plugin,omitempty"`

	// deadlineSeconds is how long one attempt's worker, or its plugin's filling,
	// may take before it is stopped with reason WorkerTimedOut. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	DeadlineSeconds *int64 `json:"deadlineSeconds,omitempty"`

	// maxAttempts is how often a population that fails is tried before it ends
	// as Failed. Default 6.
	// +optional
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// readOnlyMany, when true, lets this Populator fill claims that have no
	// access mode that allows writing: the volume is made and filled as
	// ReadWriteOnce and handed over with the claim's modes. Not every CSI driver
	// can publish such a volume on several nodes. Default false: such claims get
	// reason UnsupportedAccessMode.
	// +optional
	ReadOnlyMany bool `json:"readOnlyMany,omitempty"`

	// maxConcurrent is how many claims this Populator fills at the same time, in
	// all namespaces; more wait with reason WaitingForSlot. Lowering it stops
	// none that has begun. Default: no limit of its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`

	// replacesExisting, when true, lets this Populator serve its kind although
	// a VolumePopulator that Sluice did not make registers the kind for another
	// controller. Make sure that the other controller is gone: two would fill.
	// +optional
	ReplacesExisting bool `json:"replacesExisting,omitempty"`
}

// SourceKind names a kind without its version, as dataSourceRef does.
type SourceKind struct {
	// group is the API group of the kind. The core group cannot be named: its
	// only source kind, PersistentVolumeClaim, belongs to CSI cloning.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'snapshot.storage.k8s.io'",message="snapshots are restored by the CSI driver, not by a populator"
	Group string `json:"group"`

	// kind is the name of the kind, for example Hello.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// Validation is one CEL rule that a source must satisfy.
type Validation struct {
	// rule is a CEL expression that is true for a valid source. It sees the
	// variables source and claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Rule string `json:"rule"`

	// message is shown on the claim when the rule is false.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// Placement is the namespace that prime and worker live in.
//
// +kubebuilder:validation:Enum=Auto;Claim;Source;System
type Placement string

// The placements.
const (
	// PlacementAuto is Claim, or Source for a source of another namespace that
	// names Secrets or ConfigMaps.
	PlacementAuto Placement = "Auto"
	// PlacementClaim is the claim's namespace.
	PlacementClaim Placement = "Claim"
	// PlacementSource is the source's namespace.
	PlacementSource Placement = "Source"
	// PlacementSystem is the manager's namespace.
	PlacementSystem Placement = "System"
)

// WorkerTemplate is a Pod template reduced to what a worker may need. All that
// is left out gets a default that the restricted Pod Security profile admits.
// ${CEL} stands in env values and file contents only; a literal ${ is written
// $${. Expressions see source, claim and volume.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.rootIfNeeded) && self.rootIfNeeded && has(self.securityContext) && (has(self.securityContext.runAsUser) || (has(self.securityContext.runAsNonRoot) && self.securityContext.runAsNonRoot)))",message="rootIfNeeded chooses the worker's user; leave runAsUser and runAsNonRoot out of securityContext"
type WorkerTemplate struct {
	// labels are added to the worker Pod, for example to keep a service mesh
	// from injecting a sidecar.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the worker Pod.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// image is the container image of the worker.
	// +required
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// imagePullPolicy is as in a Pod.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are names of Secrets in the worker's namespace.
	// +optional
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command replaces the image's entry point.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`

	// args are the command's arguments.
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`

	// env is the worker's environment. value may hold ${CEL}; valueFrom is as
	// in a Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`

	// files are written into a read-only directory, $SLUICE_FILES, that the
	// worker sees. For contents that are too large for an environment variable
	// or must be byte-exact.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Files []File `json:"files,omitempty"`

	// resources are the worker's requests and limits. What is left out gets a
	// default: requests 10m CPU and 32Mi, limits 1 CPU and 256Mi.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// securityContext of the worker container. What is left out gets a default
	// that the restricted profile admits (non-root, uid and gid 65532, all
	// capabilities dropped, seccomp RuntimeDefault).
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// rootIfNeeded, when true, runs the worker as user and group 0, with all
	// capabilities dropped, on volumes that belong to root whatever fsGroup says,
	// as those of many network file systems do. Namespaces of the restricted
	// profile refuse such a worker. Default false: claims of such volumes get
	// reason VolumeNotWritable, unless securityContext names a user.
	// +optional
	RootIfNeeded bool `json:"rootIfNeeded,omitempty"`

	// serviceAccountName runs the worker under this account of its namespace.
	// Its token is mounted only if automountServiceAccountToken is true.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// automountServiceAccountToken gives the worker an API token. Default
	// false.
	// +optional
	AutomountServiceAccountToken bool `json:"automountServiceAccountToken,omitempty"`

	// volumes are more volumes of the Pod: Secrets, ConfigMaps, projected and
	// empty directories of the worker's namespace. hostPath is refused.
	// +optional
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts say where volumes appear in the worker container.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// sourceVolumes are Secrets and ConfigMaps that the source names, mounted
	// into the worker container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	SourceVolumes []SourceVolume `json:"sourceVolumes,omitempty"`

	// tolerations of the worker Pod.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// nodeSelector of the worker Pod, beside what the volume itself demands.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// priorityClassName of the worker Pod.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// runtimeClassName of the worker Pod.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
}

// File is one file that a worker sees in its $SLUICE_FILES directory.
type File struct {
	// name of the file: a plain file name.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// content of the file. It may hold ${CEL}.
	// +optional
	Content string `json:"content,omitempty"`
}

// Plugin is where a gRPC service of the contract sluice.populator.v1 listens.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) != has(self.socket)",message="exactly one of service and socket must be set"
type Plugin struct {
	// service is a Kubernetes Service that the manager reaches by mutual TLS. The
	// plugin's certificate is for name.namespace.svc; the manager's is signed by
	// the authority in ConfigMap sluice-plugin-clients of the manager's namespace.
	// +optional
	Service *PluginService `json:"service,omitempty"`

	// socket is the path of a unix socket that a side-car of the manager serves.
	// +optional
	// +kubebuilder:validation:Pattern=`^/run/sluice/[A-Za-z0-9][A-Za-z0-9._-]*$`
	Socket string `json:"socket,omitempty"`
}

// PluginService names a Service.
type PluginService struct {
	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// port of the Service. Default 9443.
	// +optional
	// +kubebuilder:default=9443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// caBundle holds, as PEM, the authorities that sign the plugin's certificate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle"`
}

// PopulatorStatus is what the manager found out about a Populator.
type PopulatorStatus struct {
	// observedGeneration is the generation that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// plugin is what the Populator's plugin said about itself when it was
	// accepted; unset for a Populator with a worker.
	// +optional
	Plugin *PluginInfo `json:"plugin,omitempty"`

	// conditions: Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PluginCapability is something that a plugin can do.
type PluginCapability string

// The capabilities of the contract sluice.populator.v1.
const (
	// PluginComputesWorker: the plugin computes the worker of each claim.
	PluginComputesWorker PluginCapability = "ComputeWorker"
	// PluginFills: the plugin has the storage fill volumes, without a worker.
	PluginFills PluginCapability = "Fill"
	// PluginValidatesSource: the plugin judges sources.
	PluginValidatesSource PluginCapability = "ValidateSource"
	// PluginMutatesPrime: the plugin adds labels and annotations to primes.
	PluginMutatesPrime PluginCapability = "MutatePrime"
)

// PluginInfo is what a plugin says about itself.
type PluginInfo struct {
	// name of the plugin.
	// +optional
	Name string `json:"name,omitempty"`
	// version of the plugin.
	// +optional
	Version string `json:"version,omitempty"`
	// capabilities of the plugin, sorted: ComputeWorker or Fill, and whether it
	// can do ValidateSource and MutatePrime.
	// +optional
	// +listType=set
	Capabilities []PluginCapability `json:"capabilities,omitempty"`
}
