package v1alpha1

// SourceVolume mounts a Secret or ConfigMap that a source names into its
// worker. It lies in the namespace of the source, and is mounted there or not at
// all: Sluice reads no Secret and copies none.
//
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.configMap)",message="exactly one of secret and configMap must be set"
type SourceVolume struct {
	// name of the Pod's volume, unique beside those of volumes.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// mountPath is the directory in the worker that the keys of the object
	// appear in as files, read-only. When the source names no object, there is
	// no such directory.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]+$`
	MountPath string `json:"mountPath"`

	// secret is a CEL expression without ${} that yields the name of a Secret,
	// as a string or optional string; it sees source alone. An optional without
	// a value, or an empty string, leaves the volume out.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Secret string `json:"secret,omitempty"`

	// configMap is the same for the name of a ConfigMap.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	ConfigMap string `json:"configMap,omitempty"`

	// optionalWhen is a CEL expression without ${} that yields a bool; it sees
	// source alone. Where it is true, the worker starts also when the object does
	// not exist, with an empty directory. Default: the worker starts when the
	// object is there, and until then the claim says that it is missing.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	OptionalWhen string `json:"optionalWhen,omitempty"`
}
