package change

// ConditionComplete is True once the volume has the target; its reason is the
// one word for where the change is.
const ConditionComplete = "Complete"

// Finalizer keeps a journal until the volume has its old or its new affinity.
const Finalizer = "sluice.dev/affinity"

// Reasons of node affinity changes.
const (
	ReasonChanging          = "ChangingNodeAffinity"
	ReasonAffinityChanged   = "NodeAffinityChanged"
	ReasonNothingToDo       = "NothingToDo"
	ReasonInvalidTarget     = "InvalidTarget"
	ReasonNoNodeLeft        = "NoNodeLeft"
	ReasonNotApproved       = "NotApproved"
	ReasonPodsInTheWay      = "PodsInTheWay"
	ReasonAnotherChange     = "AnotherChange"
	ReasonGateDisabled      = "GateDisabled"
	ReasonSettling          = "Settling"
	ReasonDraining          = "Draining"
	ReasonWaitingForStorage = "WaitingForStorage"
	ReasonStorageFailed     = "StorageFailed"
	ReasonPaused            = "Paused"
	ReasonAborted           = "Aborted"
	ReasonVolumeNotFound    = "VolumeNotFound"
	ReasonVolumeReplaced    = "VolumeReplaced"
	ReasonForeignEdit       = "ForeignEdit"
	ReasonKindChanged       = "KindChanged"
)
