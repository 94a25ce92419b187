package v1alpha1

// Labels, annotations and finalizers that Sluice writes or reads. Selection is
// always by claim UID, never by a label that several claims share.
const (
	// LabelClaimUID marks a temporary (prime or worker) with the UID of the
	// claim it was made for. A temporary whose claim UID no longer exists is
	// swept.
	LabelClaimUID = "sluice.dev/claim-uid"

	// LabelAttempt marks a temporary with the number of the attempt it belongs
	// to: Population.spec.attempt, decimal.
	LabelAttempt = "sluice.dev/attempt"

	// LabelRole says what a temporary is: RolePrime, RoleScout or RoleWorker.
	LabelRole = "sluice.dev/role"

	// AnnotationNonce repeats Population.spec.nonce on a temporary. An object
	// that carries the right labels but not the right nonce is not ours.
	AnnotationNonce = "sluice.dev/nonce"

	// AnnotationClaim names the claim of a temporary as namespace/name, for
	// people and for events of temporaries that live in another namespace.
	AnnotationClaim = "sluice.dev/claim"

	// LabelPartial marks a Released volume that a prime left behind half
	// filled under reclaim policy Retain. Sluice never deletes it.
	LabelPartial = "sluice.dev/partial"

	// LabelSourceReader on a ClusterRole aggregates it to the manager's role
	// for reading source kinds.
	LabelSourceReader = "sluice.dev/aggregate-to-source-reader"

	// LabelIgnore on a namespace keeps Sluice out of it when the value is
	// "true": no claim in it is filled and no webhook looks at it.
	LabelIgnore = "sluice.dev/ignore"

	// AnnotationPopulate on a claim of a WaitForFirstConsumer class, value
	// PopulateImmediately, starts the population before there is a consumer.
	AnnotationPopulate = "sluice.dev/populate"

	// AnnotationSourceNamespace on a claim names the namespace of its source
	// when that is not the claim's own, on clusters whose API server drops a
	// dataSourceRef with a namespace. Needs a ReferenceGrant (KEP-3294).
	AnnotationSourceNamespace = "sluice.dev/data-source-namespace"

	// AnnotationShipped on a Populator that came with Sluice is the digest of the
	// version that was applied last. Without it, Sluice leaves the Populator alone.
	AnnotationShipped = "sluice.dev/shipped"

	// FinalizerPopulation on a claim holds it until temporaries in another
	// namespace are observed gone. Not used in placement Claim.
	FinalizerPopulation = "sluice.dev/population"

	// FinalizerPlugin on a prime holds it, and with it the volume, until the
	// plugin that fills the volume says that it has ended and cleaned up.
	FinalizerPlugin = "sluice.dev/plugin"

	// AnnotationPopulator on a prime names the Populator whose plugin fills its
	// volume, for when the claim is gone that would tell.
	AnnotationPopulator = "sluice.dev/populator"
)

// Values of LabelRole and AnnotationPopulate.
const (
	RolePrime           = "prime"
	RoleScout           = "scout"
	RoleWorker          = "worker"
	PopulateImmediately = "immediately"
)

// ReasonPopulatorKept is the reason of an event on a Populator that comes with
// Sluice: somebody changed it, and this version's is not applied over that.
const ReasonPopulatorKept = "PopulatorKept"

// What a worker finds in its environment.
const (
	// EnvTarget holds the path of the volume: a directory for volume mode
	// Filesystem, a device for Block.
	EnvTarget = "SLUICE_TARGET"

	// EnvVolumeMode holds the claim's volume mode: Filesystem or Block.
	EnvVolumeMode = "SLUICE_VOLUME_MODE"

	// EnvFiles holds the directory of the template's files, if it has any.
	EnvFiles = "SLUICE_FILES"
)

// Paths and names inside a worker Pod.
const (
	// TargetPath is the mount path of a file-system volume.
	TargetPath = "/sluice/target"

	// TargetDevice is the device path of a block volume.
	TargetDevice = "/dev/sluice-target"

	// FilesPath is where a template's files are mounted, read-only.
	FilesPath = "/sluice/files"

	// TargetVolume and FilesVolume are the names of the Pod's volumes that hold
	// the prime and the template's files.
	TargetVolume = "sluice-target"
	FilesVolume  = "sluice-files"

	// WorkerContainer is the name of the container that writes. Success is
	// judged by this container alone: a sidecar added by a service mesh may
	// run on.
	WorkerContainer = "worker"

	// OfferContainer is the name of the init container that looks whether the
	// Secrets of a worker are offered to its source, where that is required.
	OfferContainer = "sluice-offered"
)
