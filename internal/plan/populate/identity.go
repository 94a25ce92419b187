package populate

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Annotations of Kubernetes' volume controllers and of ours that only the
// planner reads.
const (
	annSelectedNode      = "volume.kubernetes.io/selected-node"
	annBindCompleted     = "pv.kubernetes.io/bind-completed"
	annBoundByController = "pv.kubernetes.io/bound-by-controller"

	// AnnotationPrimeUID on a worker is the UID of the prime that it was made
	// for: a worker that a late writer made for another prime is not trusted.
	AnnotationPrimeUID = "sluice.dev/prime-uid"
	// AnnotationReclaimPolicy on a worker is the reclaim policy that its volume
	// had when the worker was made.
	AnnotationReclaimPolicy = "sluice.dev/reclaim-policy"
	// AnnotationSourceGeneration and AnnotationPopulatorGeneration on a worker
	// are the generations that it was rendered from.
	AnnotationSourceGeneration    = "sluice.dev/source-generation"
	AnnotationPopulatorGeneration = "sluice.dev/populator-generation"
)

// Labels on volumes, beside LabelClaimUID and LabelAttempt.
const (
	// RoleFilled is the LabelRole of a volume that was handed over filled.
	RoleFilled = "filled"
	// RoleForeign is the LabelRole of somebody's volume that a prime was bound
	// to, while it is given back.
	RoleForeign = "foreign"
	// LabelReclaimPolicy is the reclaim policy that a volume given back had.
	LabelReclaimPolicy = "sluice.dev/reclaim-policy"
)

// TemporaryName is the name of the prime and of the worker of one attempt, and
// of the worker's ConfigMap. It is never used for another attempt.
func TemporaryName(claim types.UID, attempt int32) string {
	return namePrefix(claim) + strconv.Itoa(int(attempt))
}

// isTemporaryName says that a name is one that TemporaryName makes.
func isTemporaryName(name string) bool {
	rest, ok := strings.CutPrefix(name, "sluice-")
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 1 {
		return false
	}
	_, err := strconv.ParseInt(rest[i+1:], 10, 32)
	return err == nil
}

func namePrefix(claim types.UID) string { return "sluice-" + string(claim) + "-" }

// labels are those of a temporary of one attempt.
func labels(claim types.UID, attempt int32, role string) map[string]string {
	l := volumeLabels(claim, attempt, role)
	// Backup tools would save half-filled volumes and restore primes.
	l["velero.io/exclude-from-backup"] = "true"
	return l
}

// volumeLabels are those of a volume that an attempt filled. It stays, so it
// is nothing that a backup may leave out.
func volumeLabels(claim types.UID, attempt int32, role string) map[string]string {
	return map[string]string{
		v1alpha1.LabelClaimUID: string(claim),
		v1alpha1.LabelAttempt:  strconv.Itoa(int(attempt)),
		v1alpha1.LabelRole:     role,
	}
}

// ownedBy makes the claim the owner of a temporary beside it or of the
// Population. It does not block the claim's deletion: that would take a
// permission on claims' finalizers for nothing.
func ownedBy(claim *corev1.PersistentVolumeClaim) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Name: claim.Name, UID: claim.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
	}}
}

// hasOwner says whether the claim with this UID is the controller of an object.
func hasOwner(o metav1.Object, claim types.UID) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	return ref != nil && ref.UID == claim
}

// kinship is what an object is to a claim.
type kinship int

const (
	// foreign: not ours, never touched.
	foreign kinship = iota
	// stray: by its name and labels a temporary of this claim, but not one of
	// the Population as it stands, or bereft of its owner. Deleted, never used.
	stray
	// own: a temporary of this Population beyond doubt, if it is in the right
	// place.
	own
)

// attemptReach is how far beyond the record's attempt a temporary's may be: as
// many as a record deleted in flight can have had. A label may claim anything,
// and the next attempt is numbered beyond all that are believed.
const attemptReach = 1 << 20

// nameOf is the name of a temporary in a role.
func nameOf(role string, claim types.UID, attempt int32) string {
	if role == v1alpha1.RoleScout {
		return ScoutName(claim, attempt)
	}
	return TemporaryName(claim, attempt)
}

// kin judges an object that stands for a prime, a worker or a scout of a claim
// whose record is at an attempt, and returns the attempt that it belongs to.
func kin(o metav1.Object, claim types.UID, role, nonce string, attempt int32) (kinship, int32) {
	l := o.GetLabels()
	n, err := strconv.ParseInt(l[v1alpha1.LabelAttempt], 10, 32)
	last := min(int64(attempt)+attemptReach, math.MaxInt32-1)
	if err != nil || n < 1 || n > last || l[v1alpha1.LabelClaimUID] != string(claim) || l[v1alpha1.LabelRole] != role ||
		o.GetName() != nameOf(role, claim, int32(n)) {
		return foreign, 0
	}
	if nonce == "" || o.GetAnnotations()[v1alpha1.AnnotationNonce] != nonce {
		return stray, int32(n)
	}
	return own, int32(n)
}
