// Package storage tests the simulated storage where it stands: behind the CSI
// project's side-cars, under real kubelets, on nodes of three zones. Sluice is
// not installed; what is asserted here is what its own tests build upon.
package storage
