package populator

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/kinds"
	"github.com/sluice-dev/sluice/internal/registration"
	"github.com/sluice-dev/sluice/internal/template"
)

// A situation is all that the verdict about one Populator depends on.
type situation struct {
	populator *v1alpha1.Populator

	// oldest is the oldest Populator of the source kind: this one, unless it
	// conflicts.
	oldest *v1alpha1.Populator

	// foreign are the VolumePopulators of the source kind that were not made for
	// a Populator, registrations whether they could be read.
	foreign       []string
	registrations kinds.State

	// definition of the source kind, and whether its objects can be read.
	definition definition.Definition
	source     kinds.State

	// now is the time.
	now time.Time
}

// patience is how long a new Populator may be without the right to read its
// kind before that is said: the two are often applied together, and Kubernetes
// takes a moment to add a right up.
const patience = 3 * time.Second

// A verdict is the Accepted condition to be. Without a reason there is none yet:
// something is still being read, and whoever reads it tells when it is done, or
// there is something to wait for until again.
type verdict struct {
	accepted        bool
	reason, message string
	again           time.Duration
	// plugin is what the plugin said of itself.
	plugin *v1alpha1.PluginInfo
}

// judge gives the verdict. The first check that finds something decides:
//
//	template does not compile                   TemplateInvalid
//	an older Populator, another controller      ConflictingPopulator
//	kind missing, or no right to read it        SourceKindNotReadable
//	plugin gives no answer, or serves no such   PluginUnavailable, see judgePlugin
//	else                                        Accepted
//
// What its author can mend alone comes first.
func judge(s situation) verdict {
	for _, check := range []func(situation) (verdict, bool){
		checkTemplate, checkConflict, checkSource,
	} {
		if v, found := check(s); found {
			return v
		}
	}
	return verdict{
		accepted: true, reason: v1alpha1.ReasonAccepted,
		message: fmt.Sprintf("Claims with a data source of kind %s are filled", registration.KindOf(s.populator)),
	}
}

func refuse(reason, format string, args ...any) (verdict, bool) {
	return verdict{reason: reason, message: fmt.Sprintf(format, args...)}, true
}

func checkTemplate(s situation) (verdict, bool) {
	if _, errs := template.Compile(&s.populator.Spec, s.definition.Schema); len(errs) > 0 {
		return refuse(v1alpha1.ReasonTemplateInvalid, "%s", firstErrors(errs))
	}
	return verdict{}, false
}

func checkConflict(s situation) (verdict, bool) {
	kind := registration.KindOf(s.populator)
	switch s.registrations.Status {
	case kinds.Unwatched, kinds.Starting:
		return verdict{}, true
	case kinds.Readable, kinds.NotReadable: // not there: nobody can have registered
	}
	if s.oldest.UID != s.populator.UID {
		if registration.Accepted(s.oldest) {
			return refuse(v1alpha1.ReasonConflictingPopulator, "Populator %q is older and serves %s; delete one of the two", s.oldest.Name, kind)
		}
		return refuse(v1alpha1.ReasonConflictingPopulator, "Populator %q for %s is older, though not accepted itself; correct or delete it", s.oldest.Name, kind)
	}
	if len(s.foreign) > 0 && !s.populator.Spec.ReplacesExisting {
		return refuse(v1alpha1.ReasonConflictingPopulator,
			"VolumePopulator %q registers %s for another controller; delete it, or set spec.replacesExisting once that controller is gone", s.foreign[0], kind)
	}
	return verdict{}, false
}

func checkSource(s situation) (verdict, bool) {
	kind := registration.KindOf(s.populator)
	switch s.source.Status {
	case kinds.Readable:
		return verdict{}, false
	case kinds.Unwatched, kinds.Starting:
		return verdict{}, true
	case kinds.NotReadable:
	}
	if !s.definition.Exists() {
		return refuse(v1alpha1.ReasonSourceKindNotReadable, "No kind %s exists in this cluster; install its CustomResourceDefinition or correct spec.sourceKind", kind)
	}
	if strings.Contains(s.source.Detail, "forbidden") {
		age := s.now.Sub(s.populator.CreationTimestamp.Time)
		if len(s.populator.Status.Conditions) == 0 && age >= 0 && age < patience {
			return verdict{again: patience - age}, true
		}
		return refuse(v1alpha1.ReasonSourceKindNotReadable,
			"Sluice may not read %s: create a ClusterRole with the label %s: \"true\" and the rule {apiGroups: [%s], resources: [%s], verbs: [get, list, watch]}",
			s.definition.Resource.GroupResource(), v1alpha1.LabelSourceReader, s.definition.Resource.Group, s.definition.Resource.Resource)
	}
	// The kind is there and nobody forbids reading it: the trouble will pass, and
	// is no reason to withdraw what was said of this generation.
	if c := meta.FindStatusCondition(s.populator.Status.Conditions, v1alpha1.ConditionAccepted); c != nil && c.ObservedGeneration == s.populator.Generation {
		return verdict{}, true
	}
	return refuse(v1alpha1.ReasonSourceKindNotReadable, "Kind %s cannot be read: %s", kind, s.source.Detail)
}

// condition is the verdict as it stands in the status.
func (v verdict) condition(generation int64) metav1.Condition {
	status := metav1.ConditionFalse
	if v.accepted {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: status, Reason: v.reason, Message: v.message, ObservedGeneration: generation,
	}
}

// firstErrors is the first three errors in one line.
func firstErrors(errs field.ErrorList) string {
	texts := make([]string, 0, 4)
	for i, e := range errs {
		if i == 3 {
			texts = append(texts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		texts = append(texts, e.Error())
	}
	return strings.Join(texts, "; ")
}
