package v1alpha1

// Condition types. All are positive and present from the first pass.
const (
	// ConditionReady of a Population is True once the claim is Bound to the
	// filled volume; its reason is the one word for where the claim is.
	ConditionReady = "Ready"

	// ConditionSourceResolved of a Population is True once the source was
	// read, is valid and its revision is pinned in the status.
	ConditionSourceResolved = "SourceResolved"

	// ConditionPopulated of a Population is True once the worker's success was
	// verified for the volume in the status, before the claim is bound to it.
	ConditionPopulated = "Populated"

	// ConditionAccepted of a Populator is True for the generation that is
	// served.
	ConditionAccepted = "Accepted"
)

// Reasons are one word each in the event on the claim, the condition of its
// Population, the metric label and the docs. Their order is the order of the
// checks before a worker is made; docs/reasons.md explains each.
const (
	ReasonUnrecognizedKind        = "UnrecognizedDataSourceKind"
	ReasonUnsupportedClaim        = "UnsupportedClaim"
	ReasonUnsupportedAccessMode   = "UnsupportedAccessMode"
	ReasonClassNotFound           = "ClassNotFound"
	ReasonUnsupportedClass        = "UnsupportedClass"
	ReasonNotGranted              = "NotGranted"
	ReasonGrantRevoked            = "GrantRevoked"
	ReasonSourceNotFound          = "SourceNotFound"
	ReasonSourceKindNotReadable   = "SourceKindNotReadable"
	ReasonInvalidSource           = "InvalidSource"
	ReasonWaitingForConsumer      = "WaitingForConsumer"
	ReasonWaitingForSlot          = "WaitingForSlot"
	ReasonQuotaExceeded           = "QuotaExceeded"
	ReasonPrimeBoundToForeign     = "PrimeBoundToForeignVolume"
	ReasonProvisioningFailed      = "ProvisioningFailed"
	ReasonPodSecurityRefused      = "PodSecurityRefused"
	ReasonVolumeNotWritable       = "VolumeNotWritable"
	ReasonWorkerUnschedulable     = "WorkerUnschedulable"
	ReasonWorkerImageFailed       = "WorkerImageFailed"
	ReasonWorkerTimedOut          = "WorkerTimedOut"
	ReasonWorkerFailed            = "WorkerFailed"
	ReasonNameTaken               = "NameTaken"
	ReasonTemplateFailed          = "TemplateFailed"
	ReasonTemplateInvalid         = "TemplateInvalid"
	ReasonTemplateTooLarge        = "TemplateTooLarge"
	ReasonPluginUnavailable       = "PluginUnavailable"
	ReasonPluginFailed            = "PluginFailed"
	ReasonSourceUnreachable       = "SourceUnreachable"
	ReasonSourceForbidden         = "SourceForbidden"
	ReasonSourceMissing           = "SourceMissing"
	ReasonSourceEmpty             = "SourceEmpty"
	ReasonTruncated               = "Truncated"
	ReasonDigestMismatch          = "DigestMismatch"
	ReasonUnsupportedFormat       = "UnsupportedFormat"
	ReasonVolumeTooSmall          = "VolumeTooSmall"
	ReasonSecretNotOffered        = "SecretNotOffered"
	ReasonAddressNotAllowed       = "AddressNotAllowed"
	ReasonBoundToForeignVolume    = "BoundToForeignVolume"
	ReasonVolumeUnreachableForPod = "VolumeUnreachableForPod"
	ReasonVolumeLost              = "VolumeLost"
	ReasonPlacementChanged        = "PlacementChanged"
	ReasonRequestRefused          = "RequestRefused"
)

// Reasons of a population that goes well.
const (
	ReasonPopulationStarted = "PopulationStarted"
	ReasonProvisioning      = "Provisioning"
	ReasonPopulating        = "Populating"
	ReasonBinding           = "Binding"
	ReasonPopulated         = "Populated"
)

// Reasons of a Populator's Accepted condition.
const (
	ReasonAccepted             = "Accepted"
	ReasonConflictingPopulator = "ConflictingPopulator"
)
