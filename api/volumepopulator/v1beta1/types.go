// Package v1beta1 holds the Kubernetes project's VolumePopulator registration
// (KEP-1495, group populator.storage.k8s.io) in a wire-compatible form: existing
// registrations keep counting, and Sluice makes one for every accepted
// Populator.
//
// +kubebuilder:object:generate=true
// +groupName=populator.storage.k8s.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of VolumePopulator.
const GroupName = "populator.storage.k8s.io"

var (
	// GroupVersion is the group and version of VolumePopulator.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

	// SchemeBuilder collects the functions that add this package's kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &VolumePopulator{}, &VolumePopulatorList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// VolumePopulator registers one kind as a data source that some controller
// serves. Unlike other kinds it has its content at the top level.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/2934"
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="SourceKind",type=string,JSONPath=`.sourceKind`
type VolumePopulator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// sourceKind is the kind of data source that this registers.
	// +required
	SourceKind metav1.GroupKind `json:"sourceKind"`
}

// VolumePopulatorList is a list of VolumePopulators.
//
// +kubebuilder:object:root=true
type VolumePopulatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumePopulator `json:"items"`
}
