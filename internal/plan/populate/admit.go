package populate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// noProvisioner is the provisioner of classes that provision nothing.
const noProvisioner = "kubernetes.io/no-provisioner"

// asks says that a claim names a source that a populator may serve. Claims and
// snapshots as sources are the CSI driver's.
func asks(claim *corev1.PersistentVolumeClaim) bool {
	ref := claim.Spec.DataSourceRef
	if ref == nil {
		return false
	}
	group := ptr.Deref(ref.APIGroup, "")
	return group != "" && group != "snapshot.storage.k8s.io"
}

// obstacle is why a claim has to wait: a reason, what to tell, and whether
// somebody must act.
type obstacle struct {
	reason, message string
	act             bool
	// again is when to look again; 0 where a watch reports the change.
	again time.Duration
}

// admission is the rule of a claim that nothing was made for yet in this
// attempt: the checks in order, the first obstacle is what the claim waits for.
func admission(v *view) (Decision, bool) {
	ob := v.obstacle()
	if ob == nil {
		return Decision{}, false
	}
	if young := v.left(lasting, v.claim.CreationTimestamp.Time); v.pop == nil && !ob.act && young > 0 {
		// Its consumer or its source may be in the same manifest.
		return Decision{RequeueAfter: young, Why: WhyWaiting}, true
	}
	return v.wait(WhyWaiting, ob), true
}

// wait says that the claim waits, and for what.
func (v *view) wait(why string, ob *obstacle) Decision {
	r := report{phase: v1alpha1.PhaseWaiting, reason: ob.reason, message: ob.message, event: normal}
	if ob.act {
		r.event = warning
	}
	r.change = func(st *v1alpha1.PopulationStatus) {
		st.Prime, st.Fill, st.VolumeName, st.VolumeUID, st.NodeName = nil, nil, "", "", ""
	}
	again := ob.again
	if again == 0 {
		again = 10 * recheck
	}
	return v.say(why, again, r)
}

func (v *view) obstacle() *obstacle {
	for _, check := range []func(*view) *obstacle{checkPopulator, checkClaim, checkClass, checkGrant, checkSource, checkNode, checkOwner} {
		if ob := check(v); ob != nil {
			return ob
		}
	}
	return nil
}

func checkPopulator(v *view) *obstacle {
	switch {
	case v.Populator == nil || v.Populator.DeletionTimestamp != nil:
		message := fmt.Sprintf("No populator serves %s; create a Populator for this kind", v.sourceKind())
		if v.RegisteredElsewhere {
			message = fmt.Sprintf("%s is registered for another controller; set replacesExisting in a Populator once that controller is gone", v.sourceKind())
		}
		return &obstacle{reason: v1alpha1.ReasonUnrecognizedKind, message: message, act: true}
	}
	return checkPlugin(v)
}

func (v *view) sourceKind() string {
	ref := v.claim.Spec.DataSourceRef
	if ref == nil {
		return "the source"
	}
	return fmt.Sprintf("%s.%s", ref.Kind, ptr.Deref(ref.APIGroup, ""))
}

func checkClaim(v *view) *obstacle {
	switch {
	case !asks(v.claim):
		return &obstacle{reason: v1alpha1.ReasonUnsupportedClaim, message: "The claim names no data source that a populator can fill it from; create it anew with another dataSourceRef", act: true}
	case v.claim.Spec.Selector != nil:
		return &obstacle{reason: v1alpha1.ReasonUnsupportedClaim, act: true,
			message: "The claim has a selector, so no volume can be provisioned for it; create it anew without one"}
	case v.claim.Spec.StorageClassName != nil && *v.claim.Spec.StorageClassName == "":
		return &obstacle{reason: v1alpha1.ReasonUnsupportedClaim, act: true,
			message: "The claim asks for no storage class, so no volume can be provisioned for it; create it anew with a class"}
	case v.readOnly() && !v.Populator.Spec.ReadOnlyMany:
		return &obstacle{reason: v1alpha1.ReasonUnsupportedAccessMode, act: true, message: fmt.Sprintf(
			"The claim has no access mode that allows writing; create it anew with ReadWriteOnce, or set readOnlyMany in Populator %q", v.Populator.Name)}
	}
	return nil
}

// readOnly says that the claim has no access mode that a worker could use.
func (v *view) readOnly() bool {
	return !slices.ContainsFunc(v.claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
}

// primeModes are the access modes of the prime, and so of the volume until it is
// handed over. Kubernetes never binds a volume to a claim whose modes it lacks,
// but a volume's modes can be changed.
func (v *view) primeModes() []corev1.PersistentVolumeAccessMode {
	if v.readOnly() {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return v.claim.Spec.AccessModes
}

func checkClass(v *view) *obstacle {
	switch {
	case v.claim.Spec.StorageClassName == nil:
		return &obstacle{reason: v1alpha1.ReasonClassNotFound, act: true,
			message: "The claim names no storage class and there is no default class; mark one as default"}
	case v.Class == nil:
		return &obstacle{reason: v1alpha1.ReasonClassNotFound, act: true,
			message: fmt.Sprintf("StorageClass %q does not exist; create it, or the claim anew with another class", *v.claim.Spec.StorageClassName)}
	case v.Class.Provisioner == noProvisioner:
		return &obstacle{reason: v1alpha1.ReasonUnsupportedClaim, act: true,
			message: fmt.Sprintf("StorageClass %q has no provisioner, so no volume can be made for the claim; create the claim anew with another class", v.Class.Name)}
	}
	if ob := v.inTree(); ob != nil {
		return ob
	}
	if key, word := v.templated(); key != "" {
		return &obstacle{reason: v1alpha1.ReasonUnsupportedClass, act: true,
			message: fmt.Sprintf("StorageClass %q uses %s in parameter %q, which would name the prime instead of the claim; create the claim anew with another class", v.Class.Name, word, key)}
	}
	return nil
}

// inTreePrefix begins the names of provisioners that were once part of
// Kubernetes.
const inTreePrefix = "kubernetes.io/"

// inTree is the obstacle of a class whose provisioner is part of Kubernetes no
// more. For those that a CSI driver stands in for, Kubernetes writes the
// driver's name on the claim when it asks for a volume.
func (v *view) inTree() *obstacle {
	asked := !v.waitsForConsumer() || v.claim.Annotations[annSelectedNode] != ""
	by := v.claim.Annotations[annProvisioner]
	if !strings.HasPrefix(v.Class.Provisioner, inTreePrefix) || !asked || (by != "" && !strings.HasPrefix(by, inTreePrefix)) {
		return nil
	}
	return &obstacle{
		reason: v1alpha1.ReasonUnsupportedClass, again: lasting,
		act: v.left(lasting, v.claim.CreationTimestamp.Time) == 0, // Kubernetes may have yet to take up the claim
		message: fmt.Sprintf("StorageClass %q names provisioner %q, for which Kubernetes has no CSI driver; use a class of a CSI driver",
			v.Class.Name, v.Class.Provisioner),
	}
}

// templated finds a secret parameter of the class that would be resolved
// against the prime and stay on the volume for ever.
func (v *view) templated() (key, word string) {
	words := []string{"${pvc.name}"}
	if v.where() != v.Namespace {
		words = append(words, "${pvc.namespace}")
	}
	for k, value := range v.Class.Parameters {
		if !strings.Contains(strings.ToLower(k), "secret") {
			continue
		}
		for _, w := range words {
			if strings.Contains(value, w) && (key == "" || k < key) {
				key, word = k, w
			}
		}
	}
	return key, word
}

func checkGrant(v *view) *obstacle {
	if v.Source.Namespace == "" || v.Source.Namespace == v.Namespace || v.Source.Granted {
		return nil
	}
	message := fmt.Sprintf("No ReferenceGrant in namespace %q lets claims of namespace %q refer to %s %q",
		v.Source.Namespace, v.Namespace, v.sourceKind(), v.claim.Spec.DataSourceRef.Name)
	if v.Source.Ungrantable != "" {
		message = fmt.Sprintf("%s, and no grant can be read before the kind ReferenceGrant of the Gateway API is installed: %s", message, clean(v.Source.Ungrantable))
	} else {
		message += "; have one created there"
	}
	return &obstacle{reason: v1alpha1.ReasonNotGranted, act: true, message: message}
}

func checkSource(v *view) *obstacle {
	if v.Source.State == SourceFound && v.Source.Invalid == "" {
		return v.outOfReach(v.Source.Objects)
	}
	ob := &obstacle{act: true}
	ob.reason, ob.message = v.sourceProblem()
	switch v.Source.State {
	case SourceNotFound:
		ob.act = false // the usual order of a manifest
	case SourceKindNotReadable, SourceUnknown:
		ob.again = recheck
	case SourceFound:
	}
	return ob
}

// outOfReach says that a source names objects for its worker while the worker
// would live in another namespace. An object of the same name may exist there,
// and belong to somebody else: it must never be mounted for this source.
func (v *view) outOfReach(objects []NamedObject) *obstacle {
	if len(objects) == 0 || v.Source.Namespace == "" || v.Source.Namespace == v.where() {
		return nil
	}
	return &obstacle{reason: v1alpha1.ReasonInvalidSource, act: true, message: fmt.Sprintf(
		"%s %q of namespace %q names %s %q, which a worker in namespace %q cannot mount; move the claim to the namespace of the source, or let Populator %q have placement Source",
		v.sourceKind(), v.claim.Spec.DataSourceRef.Name, v.Source.Namespace, objects[0].Kind, objects[0].Name, v.where(), v.populatorName())}
}

// sourceProblem is what is wrong with the source.
func (v *view) sourceProblem() (reason, message string) {
	what := fmt.Sprintf("%s %q", v.sourceKind(), v.claim.Spec.DataSourceRef.Name)
	switch v.Source.State {
	case SourceFound:
		if v.Source.InvalidReason == v1alpha1.ReasonTemplateFailed {
			return v1alpha1.ReasonTemplateFailed, fmt.Sprintf("A validation of Populator %q cannot be evaluated over %s, correct one of the two: %s", v.populatorName(), what, v.Source.Invalid)
		}
		return v1alpha1.ReasonInvalidSource, fmt.Sprintf("%s is invalid, correct it: %s", what, v.Source.Invalid)
	case SourceNotFound:
		return v1alpha1.ReasonSourceNotFound, what + " does not exist yet; create it in namespace " + strconv.Quote(v.sourceNamespace())
	case SourceKindNotReadable:
		return v1alpha1.ReasonSourceKindNotReadable, fmt.Sprintf("%s cannot be read; install its kind and the ClusterRole of Populator %q: %s", what, v.populatorName(), v.Source.Detail)
	case SourceUnknown:
	}
	return v1alpha1.ReasonSourceKindNotReadable, what + " is being looked for"
}

// sourceNamespace is the namespace that the claim's source is looked for in.
func (v *view) sourceNamespace() string {
	if v.Source.Namespace != "" {
		return v.Source.Namespace
	}
	return v.Namespace
}

func (v *view) populatorName() string {
	if v.Populator == nil {
		return ""
	}
	return v.Populator.Name
}

func checkNode(v *view) *obstacle {
	if !v.waitsForConsumer() || v.claim.Annotations[annSelectedNode] != "" {
		return nil
	}
	if v.fills() {
		// Without a worker there is nothing that a scheduler could find a node for.
		return &obstacle{reason: v1alpha1.ReasonWaitingForConsumer, message: fmt.Sprintf(
			"StorageClass %q waits for a Pod that uses the claim, which has to choose the node", v.Class.Name)}
	}
	if v.immediately() {
		return nil
	}
	return &obstacle{reason: v1alpha1.ReasonWaitingForConsumer, message: fmt.Sprintf(
		"StorageClass %q waits for a Pod that uses the claim; annotate the claim with %s=%s to fill it before there is one",
		v.Class.Name, v1alpha1.AnnotationPopulate, v1alpha1.PopulateImmediately)}
}
