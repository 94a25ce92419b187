package explain

import "github.com/sluice-dev/sluice/api/v1alpha1"

// advice is what a reason means to a person.
type advice struct {
	// waits is what the claim waits for while it has this reason.
	waits string
	// next is what Sluice does once that is there.
	next string
	// do is one line of what to do.
	do string
	// act says that nothing happens until someone does it.
	act bool
}

// What comes next, in the words that several reasons share.
const (
	nextStart   = "Sluice starts to fill the claim by itself"
	nextAttempt = "another attempt on a fresh volume, after a back-off that doubles from 10 seconds to 5 minutes"
	nextTry     = "Sluice tries again by itself"
)

// advices has every reason of the API. A reason that stands for the end of an
// attempt is someone's to act on only once no attempt is left, which the phase
// says; act is about claims that wait.
var advices = map[string]advice{
	// What a claim waits for before anything is made for it.
	v1alpha1.ReasonUnrecognizedKind: {act: true, waits: "a Populator for the kind of its source", next: nextStart,
		do: "Create a Populator for this kind, or name a source of a kind that is served: kubectl get populators"},
	v1alpha1.ReasonUnsupportedClaim: {act: true, waits: "a claim that a volume can be provisioned for", next: "nothing, as this part of a claim cannot be changed",
		do: "Delete the claim and create it again as the message says"},
	v1alpha1.ReasonUnsupportedAccessMode: {act: true, waits: "an access mode that allows writing", next: "nothing, as access modes cannot be changed",
		do: "Delete the claim and create it again with ReadWriteOnce"},
	v1alpha1.ReasonClassNotFound: {act: true, waits: "its storage class", next: nextStart,
		do: "Create the storage class that the claim names, or mark one as default: kubectl get storageclasses"},
	v1alpha1.ReasonUnsupportedClass: {act: true, waits: "a storage class that provisions for Sluice", next: nextStart,
		do: "Create the claim again with another storage class, or correct the parameter that the message names"},
	v1alpha1.ReasonNotGranted: {act: true, waits: "a ReferenceGrant in the namespace of its source", next: nextStart,
		do: "Ask the owner of the source's namespace for a ReferenceGrant from PersistentVolumeClaims of this namespace"},
	v1alpha1.ReasonGrantRevoked: {act: true, waits: "the ReferenceGrant that was taken away", next: nextAttempt,
		do: "Ask the owner of the source's namespace to grant it again, or use another source"},
	v1alpha1.ReasonSourceNotFound: {act: true, waits: "its source to be created", next: nextStart,
		do: "Create the source, or correct the name in the claim's dataSourceRef by creating the claim again"},
	v1alpha1.ReasonSourceKindNotReadable: {act: true, waits: "the right to read the kind of its source", next: nextStart,
		do: "Have an administrator install the kind's CustomResourceDefinition and the ClusterRole labelled " + v1alpha1.LabelSourceReader},
	v1alpha1.ReasonInvalidSource: {act: true, waits: "its source to be corrected", next: nextStart,
		do: "Correct the source as the message says"},
	v1alpha1.ReasonWaitingForConsumer: {waits: "a Pod that uses it, which decides on the node", next: nextStart,
		do: "Create a Pod that uses the claim, or annotate the claim with " + v1alpha1.AnnotationPopulate + "=" + v1alpha1.PopulateImmediately},
	v1alpha1.ReasonWaitingForSlot: {waits: "its turn among other claims", next: nextStart,
		do: "Nothing; claims that run end first"},
	v1alpha1.ReasonQuotaExceeded: {act: true, waits: "room in the quota of its namespace", next: nextTry,
		do: "Raise the quota or delete claims: while it is filled, a claim counts twice"},
	v1alpha1.ReasonPrimeBoundToForeign: {waits: "a volume of its own: it was given somebody's, which is given back untouched", next: nextAttempt,
		do: "Nothing; should it recur, keep Available volumes of this storage class away from new claims"},
	v1alpha1.ReasonProvisioningFailed: {act: true, waits: "a volume from the storage driver", next: nextTry,
		do: "Read the driver's message; the remedy is with the storage or its class"},
	v1alpha1.ReasonPodSecurityRefused: {act: true, waits: "a worker that its namespace admits", next: nextTry,
		do: "Have the Populator's worker fit the Pod Security level of the namespace, or exempt the namespace"},
	v1alpha1.ReasonVolumeNotWritable: {act: true, waits: "a volume that the worker may write to", next: nextAttempt,
		do: "Let the Populator's worker run as user 0, or have the driver apply fsGroup (CSIDriver fsGroupPolicy File)"},
	v1alpha1.ReasonWorkerUnschedulable: {act: true, waits: "a node that the worker can run on", next: nextTry,
		do: "Make room on a node that reaches the volume, or give the Populator's worker the tolerations it needs"},
	v1alpha1.ReasonWorkerImageFailed: {act: true, waits: "the image of the worker", next: nextTry,
		do: "Correct the image in the Populator, or let nodes pull it"},
	v1alpha1.ReasonWorkerTimedOut: {waits: "another attempt within the deadline", next: nextAttempt,
		do: "Raise deadlineSeconds of the Populator, or make the source faster or smaller"},
	v1alpha1.ReasonWorkerFailed: {waits: "another attempt", next: nextAttempt,
		do: "Read the worker's last words above; its log stays for an hour after the last attempt"},
	v1alpha1.ReasonNameTaken: {waits: "a name that nobody else uses", next: nextAttempt,
		do: "Delete the object that the message names, if it is nobody's"},
	v1alpha1.ReasonTemplateFailed: {act: true, waits: "an expression of its Populator that yields a value", next: nextAttempt,
		do: "Correct the expression in the Populator, or give the source the field that it reads"},
	v1alpha1.ReasonTemplateInvalid: {act: true, waits: "a Populator without mistakes", next: nextStart,
		do: "Correct the fields of the Populator that the message names"},
	v1alpha1.ReasonTemplateTooLarge: {act: true, waits: "a smaller source", next: nextAttempt,
		do: "Make the source smaller, or have the Populator pass it in files"},
	v1alpha1.ReasonPluginFailed: {waits: "another attempt", next: nextAttempt,
		do: "Read the plugin's words above, and its own log"},
	v1alpha1.ReasonPluginUnavailable: {act: true, waits: "the plugin of its Populator", next: nextTry,
		do: "Start the plugin that the Populator names, or give the Populator a worker"},

	// How an attempt ended.
	v1alpha1.ReasonSourceUnreachable: {waits: "its source to answer", next: nextAttempt,
		do: "See that the worker's node reaches the address of the source, and that the server runs"},
	v1alpha1.ReasonSourceForbidden: {waits: "its source to let it in", next: nextAttempt,
		do: "Correct the credentials that the source names"},
	v1alpha1.ReasonSourceMissing: {waits: "the data to exist where the source says", next: nextAttempt,
		do: "Correct the address in the source, or set onMissing: Continue for an empty volume"},
	v1alpha1.ReasonSourceEmpty: {waits: "data that is not empty", next: nextAttempt,
		do: "Put data where the source says, or set onMissing: Continue for an empty volume"},
	v1alpha1.ReasonTruncated: {waits: "data that arrives whole", next: nextAttempt,
		do: "See why the server or the network ends transfers early"},
	v1alpha1.ReasonDigestMismatch: {waits: "data with the digest that the source says", next: nextAttempt,
		do: "Find out which of the two is right: the data, or the digest in the source"},
	v1alpha1.ReasonUnsupportedFormat: {waits: "data in a format that the worker knows", next: nextAttempt,
		do: "Correct the format in the source, or provide the data in another"},
	v1alpha1.ReasonVolumeTooSmall: {waits: "a volume that the data fits into", next: nextAttempt,
		do: "Delete the claim and create it again with a larger request"},
	v1alpha1.ReasonSecretNotOffered: {act: true, waits: "a Secret that its owner offers to this kind of source", next: nextAttempt,
		do: "Have the owner of the Secret add the key sluice.dev.offer with this kind"},
	v1alpha1.ReasonAddressNotAllowed: {act: true, waits: "a source at an address that is allowed", next: nextAttempt,
		do: "Correct the address in the source; loopback, link-local and metadata addresses are refused by default"},

	// The end of the road.
	v1alpha1.ReasonBoundToForeignVolume: {act: true, waits: "nothing: it was bound to a volume that Sluice did not fill", next: "nothing",
		do: "Find out who bound it; to have it filled, delete the claim and create it again"},
	v1alpha1.ReasonVolumeUnreachableForPod: {act: true, waits: "a Pod that can run where the volume is", next: "the Pod starts",
		do: "Let the Pod run on a node that reaches the volume, or create the claim again for its node"},
	v1alpha1.ReasonVolumeLost: {waits: "a volume in the place of one that was lost", next: nextAttempt,
		do: "Find out who deleted the volume or the temporary; the attempt is repeated on a new one"},
	v1alpha1.ReasonPlacementChanged: {waits: "an attempt in the namespace where it belongs now", next: nextAttempt,
		do: "Nothing; the attempt is repeated where the source is now"},
	v1alpha1.ReasonRequestRefused: {act: true, waits: "the API server to take a request that it refuses", next: nextTry,
		do: "Have the policy or webhook that the message names admit Sluice's objects"},

	// All is well.
	v1alpha1.ReasonPopulationStarted: {waits: "the worker to fill the volume", next: "the result is verified and the claim is bound to the volume", do: "Nothing"},
	v1alpha1.ReasonProvisioning:      {waits: "the storage driver to provision a volume", next: "a worker fills the volume", do: "Nothing"},
	v1alpha1.ReasonPopulating:        {waits: "the worker to fill the volume", next: "the result is verified and the claim is bound to the volume", do: "Nothing"},
	v1alpha1.ReasonBinding:           {waits: "Kubernetes to bind it to the filled volume", next: "the worker goes and the claim is settled", do: "Nothing"},
	v1alpha1.ReasonPopulated:         {waits: "nothing", next: "nothing", do: "Nothing"},

	// Of a Populator.
	v1alpha1.ReasonAccepted: {waits: "nothing", next: "nothing", do: "Nothing"},
	v1alpha1.ReasonConflictingPopulator: {act: true, waits: "its kind to be served by one Populator alone", next: nextStart,
		do: "Keep one Populator of the kind, or set replacesExisting once the other controller is gone"},
}

// adviceOn returns the advice on a reason. A manager newer than this program
// may have reasons that it does not know.
func adviceOn(reason string) advice {
	if a, ok := advices[reason]; ok {
		return a
	}
	return advice{waits: "what its message says", next: nextTry, do: "Read the message; this version of kubectl sluice does not know the reason"}
}
