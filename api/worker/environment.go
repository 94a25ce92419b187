package worker

// What a worker finds in its environment.
const (
	// EnvTarget holds the path of the volume: a directory for volume mode
	// Filesystem, a device for Block.
	EnvTarget = "SLUICE_TARGET"
	// EnvVolumeMode holds the claim's volume mode: ModeFilesystem or ModeBlock.
	EnvVolumeMode = "SLUICE_VOLUME_MODE"
	// EnvFiles holds the directory of the template's files, if it has any.
	EnvFiles = "SLUICE_FILES"
	// TerminationLog is where a container leaves its termination message.
	TerminationLog = "/dev/termination-log"
)

// Values of EnvVolumeMode.
const (
	ModeFilesystem = "Filesystem"
	ModeBlock      = "Block"
)

// Exit codes of Sluice's own worker. The manager reads the Result first; the
// code tells a person who looks at the Pod.
const (
	// ExitOK: the volume is filled and verified.
	ExitOK = 0
	// ExitFailed: the attempt failed; another one may succeed.
	ExitFailed = 1
	// ExitUsage: the worker was called with a bad flag or environment.
	ExitUsage = 2
	// ExitPermanent: the attempt failed and so would any other until the
	// source, the claim or the populator changes.
	ExitPermanent = 3
	// ExitStopped: the worker was told to stop before it had finished.
	ExitStopped = 4
)

// Reasons that a worker may give for a failure. They are the words that users
// meet in the claim's events and in the Population.
const (
	ReasonSourceUnreachable = "SourceUnreachable"
	ReasonSourceForbidden   = "SourceForbidden"
	ReasonSourceMissing     = "SourceMissing"
	ReasonSourceEmpty       = "SourceEmpty"
	ReasonTruncated         = "Truncated"
	ReasonDigestMismatch    = "DigestMismatch"
	ReasonUnsupportedFormat = "UnsupportedFormat"
	ReasonVolumeTooSmall    = "VolumeTooSmall"
	ReasonVolumeNotWritable = "VolumeNotWritable"
	ReasonSecretNotOffered  = "SecretNotOffered"
	ReasonAddressNotAllowed = "AddressNotAllowed"
	ReasonWorkerFailed      = "WorkerFailed"
)

// reasons are those that a Result may carry; any other is replaced by
// ReasonWorkerFailed.
var reasons = map[string]bool{
	ReasonSourceUnreachable: true,
	ReasonSourceForbidden:   true,
	ReasonSourceMissing:     true,
	ReasonSourceEmpty:       true,
	ReasonTruncated:         true,
	ReasonDigestMismatch:    true,
	ReasonUnsupportedFormat: true,
	ReasonVolumeTooSmall:    true,
	ReasonVolumeNotWritable: true,
	ReasonSecretNotOffered:  true,
	ReasonAddressNotAllowed: true,
	ReasonWorkerFailed:      true,
}

// Known says that a word is one of the reasons that a worker may give.
func Known(reason string) bool { return reasons[reason] }
