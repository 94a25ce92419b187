package populate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Call is one of the calls of the contract sluice.populator.v1.
type Call string

// The calls. Each answers about one ID: a revision of the source, an attempt's
// name, or a fill.
const (
	CallValidate Call = "ValidateSource"
	CallMutate   Call = "MutatePrime"
	CallCompute  Call = "ComputeWorker"
	CallStart    Call = "StartFill"
	CallStatus   Call = "GetFill"
	CallCleanup  Call = "CleanupFill"
)

// CallPlugin has a plugin called. It writes nothing and is over at once: the
// answer is in a later observation, and until then the call is Pending there.
type CallPlugin struct {
	// Populator names the Populator whose plugin is called.
	Populator string
	Call      Call
	// ID is what the answer will be about.
	ID string
	// Namespace, Name and ClaimUID are the claim that this is for.
	Namespace, Name string
	ClaimUID        types.UID
	// Attempt is the attempt, Volume its volume and VolumeUID that one's UID, as
	// far as there are any.
	Attempt   int32
	Volume    string
	VolumeUID types.UID
	// HandedOver says of CallCleanup that the volume is the claim's now.
	HandedOver bool
}

// StartFill writes the Record, then has the plugin called to begin. Unless the
// Record was written it is not called: the Record is the durable word that the
// fill may have begun.
type StartFill struct {
	Record WriteStatus
	Start  CallPlugin
}

func (CallPlugin) step() {}
func (StartFill) step()  {}

// FillState is how far a plugin is.
type FillState int

// The states of a fill.
const (
	// FillRunning: accepted and not ended.
	FillRunning FillState = iota
	// FillSucceeded: the volume holds what the source says.
	FillSucceeded
	// FillFailed: ended badly; Answer.Failure says why.
	FillFailed
)

// Answer is the newest answer of a plugin about one ID, as this process has it.
// What a plugin says in it is bounded and cleaned.
type Answer struct {
	// Call was made last, about ID. Starting and asking about a fill are one
	// matter, and have one answer.
	Call Call
	ID   string
	// At is when the answer came.
	At time.Time
	// Pending says that the call is under way, or waits for its turn.
	Pending bool

	// Unavailable is why there is no answer, if there is none: the call is made
	// again after RetryAfter. Its reason is Reason: PluginUnavailable or
	// WaitingForSlot, or what became of the source.
	Unavailable, Reason string
	RetryAfter          time.Duration
	// Doubtful says of a call without an answer that the plugin may have done what
	// it was asked.
	Doubtful bool
	// Unknown says that the plugin knows no such fill.
	Unknown bool
	// Failure is why nothing comes of the call, for good or until the next
	// attempt.
	Failure *Failure

	// State, Message, Bytes, TotalBytes and Digest are of a fill.
	State             FillState
	Message           string
	Bytes, TotalBytes int64
	Digest            string

	// Done says that a fill is cleaned up.
	Done bool
	// Invalid is what is wrong with a source.
	Invalid string
	// Labels and Annotations are for the prime.
	Labels, Annotations map[string]string
	// Worker is what a plugin computed.
	Worker *v1alpha1.WorkerTemplate
}

// Failure is why a plugin did not do what it was asked.
type Failure struct {
	Reason, Message string
	Permanent       bool
}

// cleanupPatience is how long a deleted prime waits for its plugin. After that
// it goes, and the volume with it: a namespace must not wait for ever for a
// plugin that is gone.
const cleanupPatience = 10 * time.Minute

// can says that the Populator's plugin has a capability.
func (v *view) can(c v1alpha1.PluginCapability) bool {
	return v.Populator != nil && v.Populator.Spec.Plugin != nil && v.Populator.Status.Plugin != nil &&
		slices.Contains(v.Populator.Status.Plugin.Capabilities, c)
}

// slot is the matter that a call is about.
func slot(c Call) Call {
	if c == CallStart {
		return CallStatus
	}
	return c
}

func (v *view) answer(c Call, id string) *Answer {
	for i := range v.Answers {
		if slot(v.Answers[i].Call) == slot(c) && v.Answers[i].ID == id {
			return &v.Answers[i]
		}
	}
	return nil
}

// calling is a call for this claim.
func (v *view) calling(c Call, id string) CallPlugin {
	return CallPlugin{
		Populator: v.populatorName(), Call: c, ID: id,
		Namespace: v.Namespace, Name: v.Name, ClaimUID: v.ClaimUID, Attempt: v.n,
	}
}

// ask returns the answer to a call, or decides to make the call, to make it
// again, or to wait for its answer. tell says where the claim is while the
// plugin has no answer, if it is to be told.
func (v *view) ask(why string, call CallPlugin, tell func(reason, message string, again time.Duration) Decision) (*Answer, Decision) {
	a := v.answer(call.Call, call.ID)
	switch {
	case a == nil:
		return nil, Decision{Why: why, Step: call}
	case a.Unavailable == "" && a.Pending:
		return nil, Decision{Why: why, RequeueAfter: recheck}
	case a.Unavailable == "":
		return a, Decision{}
	}
	again := a.At.Add(a.RetryAfter).Sub(v.Now)
	if tell != nil {
		if d := tell(a.Reason, a.Unavailable, max(again, time.Second)); d.Step != nil {
			return nil, d
		}
	}
	switch {
	case a.Pending:
		return nil, Decision{Why: why, RequeueAfter: recheck}
	case again > 0 && again <= a.RetryAfter: // else the clock was set
		return nil, Decision{Why: why, RequeueAfter: again}
	}
	return nil, Decision{Why: why, Step: call}
}

// waiting tells that the claim waits for its plugin, while nothing is begun
// that the plugin's silence could harm.
func (v *view) waiting(why string) func(string, string, time.Duration) Decision {
	return func(reason, message string, again time.Duration) Decision {
		if reason == v1alpha1.ReasonNotGranted && v.n > 0 {
			reason = v1alpha1.ReasonGrantRevoked
		}
		return v.wait(why, &obstacle{reason: reason, message: message, act: waitsForSomebody(reason), again: again})
	}
}

// waitsForSomebody says that a reason to call again asks for somebody's action.
func waitsForSomebody(reason string) bool {
	return reason != v1alpha1.ReasonWaitingForSlot && reason != v1alpha1.ReasonSourceNotFound
}

// PluginAway says of a Populator that is not served because of its plugin what
// is wrong with that; empty for every other.
func PluginAway(p *v1alpha1.Populator) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	if p.Spec.Plugin == nil || p.DeletionTimestamp != nil || c == nil || c.ObservedGeneration != p.Generation ||
		c.Status == metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPluginUnavailable {
		return ""
	}
	return c.Message
}

// checkPlugin is the obstacle of a Populator whose plugin is not there.
func checkPlugin(v *view) *obstacle {
	message := PluginAway(v.Populator)
	if message == "" && v.Populator.Spec.Plugin != nil && v.Populator.Status.Plugin == nil {
		message = "It has not answered yet"
	}
	if message == "" {
		return nil
	}
	return &obstacle{reason: v1alpha1.ReasonPluginUnavailable, act: true,
		message: fmt.Sprintf("The plugin of Populator %q cannot be asked: %s", v.Populator.Name, clean(message))}
}

// judged has the plugin judge the source before anything is made for the claim.
func (v *view) judged() (Decision, bool) {
	if !v.can(v1alpha1.PluginValidatesSource) {
		return Decision{}, false
	}
	a, d := v.ask(WhyAskValid, v.calling(CallValidate, fmt.Sprintf("%s/%d", v.Source.UID, v.Source.Generation)), v.waiting(WhyAskValid))
	if a == nil {
		return d, true
	}
	invalid := a.Invalid
	if a.Failure != nil {
		invalid = a.Failure.Message
	}
	if invalid == "" {
		return Decision{}, false
	}
	return v.wait(WhyWaiting, &obstacle{reason: v1alpha1.ReasonInvalidSource, act: true,
		message: fmt.Sprintf("%s %q is invalid: %s", v.sourceKind(), v.claim.Spec.DataSourceRef.Name, invalid)}), true
}

// mutation is what the plugin adds to the prime of attempt n.
func (v *view) mutation() (*Answer, Decision, bool) {
	if !v.can(v1alpha1.PluginMutatesPrime) {
		return &Answer{}, Decision{}, false
	}
	a, d := v.ask(WhyAskPrime, v.calling(CallMutate, v.name()), v.waiting(WhyAskPrime))
	switch {
	case a == nil:
		return nil, d, true
	case a.Failure != nil:
		return nil, v.fail(WhyPluginFailed, failureOf(a.Failure)), true
	}
	return a, Decision{}, false
}

func failureOf(f *Failure) ending {
	return ending{reason: f.Reason, message: f.Message, permanent: f.Permanent}
}

// ComputeID is the ID of the answer with the worker of one attempt; volume is
// empty while a node has yet to be found for it.
func ComputeID(claim types.UID, attempt int32, volume string) string {
	return TemporaryName(claim, attempt) + "/" + volume
}

// computed has the plugin compute the worker of attempt n. What comes of it is
// rendered like a template.
func (v *view) computed() (Decision, bool) {
	if !v.can(v1alpha1.PluginComputesWorker) {
		return Decision{}, false
	}
	var call CallPlugin
	if pv := v.volume(v.prime.Spec.VolumeName); pv != nil {
		call = v.calling(CallCompute, ComputeID(v.ClaimUID, v.n, pv.Name))
		call.Volume, call.VolumeUID = pv.Name, pv.UID
	} else {
		call = v.calling(CallCompute, ComputeID(v.ClaimUID, v.n, ""))
	}
	a, d := v.ask(WhyAskWorker, call, v.waiting(WhyAskWorker))
	switch {
	case a == nil:
		return d, true
	case a.Failure != nil:
		return v.fail(WhyPluginFailed, failureOf(a.Failure)), true
	}
	return Decision{}, false
}
