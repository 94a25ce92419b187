package csi

import _ "embed" // for the manifests

// Manifests are the objects that make the driver known to a cluster: its
// CSIDriver, the storage classes sim (volumes wait for their first consumer)
// and sim-immediate, a snapshot class, and volume attributes classes that move
// a volume. The snapshot class needs the snapshot controller's CRDs.
//
//go:embed manifests.yaml
var Manifests []byte
