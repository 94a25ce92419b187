// Package nodeset computes with the sets of nodes that volumes are reachable
// from: PersistentVolume.spec.nodeAffinity (KEP-5381) as a set of nodes.
//
// Whether a node is in a set is decided by Kubernetes' own code, with the
// semantics of CheckNodeAffinity of k8s.io/component-helpers/storage/volume,
// which scheduler and kubelet go by:
//
//   - no affinity admits every node, terms are ORed, an empty term admits none;
//   - only labels count: matchFields are ignored, so a term of nothing else
//     admits every node;
//   - a term that cannot be parsed admits no node.
//
// What holds for nodes that do not exist yet is decided by structure: the terms
// are compared as sets of all labels that a node could carry, so that order,
// repetition and contradictions make no difference.
package nodeset
