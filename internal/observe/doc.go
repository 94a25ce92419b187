// Package observe gathers what a planner decides on: it reads caches, and the
// API server where a decision cannot be taken back, into one observation.
//
// A cache may be behind the writes of this very process. Memory bridges that:
// what was written is remembered until the cache has it, so that nothing is
// written twice and no reconcile has to wait for a cache.
package observe

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Key names one claim for good: the name of a claim can be used again, its UID
// cannot. A claim that is gone keeps its key for as long as temporaries of it
// are left.
type Key struct {
	Namespace, Name string
	UID             types.UID
}

// String is the key as it appears in logs.
func (k Key) String() string { return k.Namespace + "/" + k.Name + "@" + string(k.UID) }

// Claim is the claim's namespace and name.
func (k Key) Claim() types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}

// temporaryPrefix begins the name of every prime and worker:
// sluice-<claim UID>-<attempt>.
const temporaryPrefix = "sluice-"

// ClaimUIDFromName returns the UID of the claim that an object of this name
// would be a temporary of; empty if the name is not one of a temporary.
func ClaimUIDFromName(name string) types.UID {
	rest, ok := strings.CutPrefix(name, temporaryPrefix)
	if !ok {
		return ""
	}
	i := strings.LastIndexByte(rest, '-')
	if i <= 0 {
		return ""
	}
	return types.UID(rest[:i])
}
