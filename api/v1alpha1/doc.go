// Package v1alpha1 holds Sluice's API, group sluice.dev.
//
// Populator says how claims of one source kind are filled. Population records
// the filling of one claim: its progress while it runs, its provenance
// afterwards. The words are those of design.md: claim, prime, volume, source,
// populator, worker, population.
//
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1
