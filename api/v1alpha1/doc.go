// Package v1alpha1 holds Sluice's API, group sluice.dev.
//
// Populator says how claims of one source kind are filled. Population records
// the filling of one claim: its progress while it runs, its provenance
// afterwards. One word per thing: the claim is the user's PersistentVolumeClaim,
// the prime the second claim that gets a volume first, the volume a
// PersistentVolume, the source what dataSourceRef names, the worker the Pod that
// writes.
//
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1
