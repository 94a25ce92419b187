package populator

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
	"github.com/sluice-dev/sluice/internal/kinds"
)

func hello(name string, change ...func(*v1alpha1.Populator)) *v1alpha1.Populator {
	p := &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: v1alpha1.PopulatorSpec{
			SourceKind: v1alpha1.SourceKind{Group: "hello.k8s.io", Kind: "Hello"},
			Worker: &v1alpha1.WorkerTemplate{
				Image: "busybox",
				Env:   []corev1.EnvVar{{Name: "NAME", Value: "${source.spec.fileName}"}},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func judged(status metav1.ConditionStatus) func(*v1alpha1.Populator) {
	return func(p *v1alpha1.Populator) {
		p.Status.ObservedGeneration = 1
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, ObservedGeneration: 1, Reason: "X"}}
	}
}

func defined(t *testing.T, schemaJSON string) definition.Definition {
	t.Helper()
	d := definition.Definition{Resource: schema.GroupVersionResource{Group: "hello.k8s.io", Version: "v1alpha1", Resource: "hellos"}}
	if schemaJSON != "" {
		d.Schema = &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal([]byte(schemaJSON), d.Schema); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

const helloSchema = `{"type": "object", "properties": {"spec": {"type": "object", "properties": {"fileName": {"type": "string"}}}}}`

func TestJudge(t *testing.T) {
	readable := kinds.State{Status: kinds.Readable}
	good := func() situation {
		p := hello("hello")
		return situation{populator: p, oldest: p, registrations: readable, definition: defined(t, helloSchema), source: readable, now: time.Unix(1000, 0)}
	}
	cases := map[string]struct {
		why    string
		change func(*situation)
		reason string // empty: no verdict yet
		says   []string
	}{
		"Accepted": {"All is well.", func(*situation) {}, v1alpha1.ReasonAccepted, []string{"Hello.hello.k8s.io"}},
		"NoSchema": {"A kind without a schema is served, its types are checked by rendering.", func(s *situation) { s.definition.Schema = nil }, v1alpha1.ReasonAccepted, nil},
		"NoRegistrations": {"Without the kind VolumePopulator nobody can have registered.", func(s *situation) {
			s.registrations = kinds.State{Status: kinds.NotReadable, Detail: "no matches"}
		}, v1alpha1.ReasonAccepted, nil},
		"Plugin": {"A plugin is asked when nothing else is in the way.", func(s *situation) {
			s.populator.Spec.Worker, s.populator.Spec.Plugin = nil, &v1alpha1.Plugin{Socket: "/run/sluice/x"}
		}, v1alpha1.ReasonAccepted, nil},
		"Source":   {"Every placement is.", func(s *situation) { s.populator.Spec.Placement = v1alpha1.PlacementSource }, v1alpha1.ReasonAccepted, nil},
		"System":   {"Every placement is.", func(s *situation) { s.populator.Spec.Placement = v1alpha1.PlacementSystem }, v1alpha1.ReasonAccepted, nil},
		"Auto":     {"The default is.", func(s *situation) { s.populator.Spec.Placement = v1alpha1.PlacementAuto }, v1alpha1.ReasonAccepted, nil},
		"Template": {"A template that does not compile names its path.", func(s *situation) { s.populator.Spec.Worker.Env[0].Value = "${source." }, v1alpha1.ReasonTemplateInvalid, []string{"spec.worker.env[0].value"}},
		"Schema":   {"The schema of the kind is known here too.", func(s *situation) { s.populator.Spec.Worker.Env[0].Value = "${source.spec.filename}" }, v1alpha1.ReasonTemplateInvalid, []string{"undefined field 'filename'"}},
		"ManyErrors": {"Of many errors the first few are said.", func(s *situation) {
			s.populator.Spec.Worker.Env[0].Value = "${a}${b}${c}${d}${e}"
		}, v1alpha1.ReasonTemplateInvalid, []string{"and 2 more"}},
		"Younger": {"The oldest serves.", func(s *situation) { s.oldest = hello("older", judged(metav1.ConditionTrue)) }, v1alpha1.ReasonConflictingPopulator, []string{`"older"`, "serves"}},
		"YoungerOfBad": {"Also when it is not accepted: a correction would make two of them serve.", func(s *situation) {
			s.oldest = hello("older", judged(metav1.ConditionFalse))
		}, v1alpha1.ReasonConflictingPopulator, []string{`"older"`, "not accepted itself"}},
		"Foreign":  {"Another controller would fill as well.", func(s *situation) { s.foreign = []string{"theirs"} }, v1alpha1.ReasonConflictingPopulator, []string{`"theirs"`, "replacesExisting"}},
		"Replaces": {"Unless the administrator says that it is gone.", func(s *situation) { s.foreign = []string{"theirs"}; s.populator.Spec.ReplacesExisting = true }, v1alpha1.ReasonAccepted, nil},
		"NoReplacingOfOurs": {"That does not replace an older Populator.", func(s *situation) {
			s.oldest = hello("older")
			s.populator.Spec.ReplacesExisting = true
		}, v1alpha1.ReasonConflictingPopulator, nil},
		"NoKind": {"A kind that does not exist is named.", func(s *situation) {
			s.definition, s.source = definition.Definition{}, kinds.State{Status: kinds.NotReadable, Detail: "no matches for kind"}
		}, v1alpha1.ReasonSourceKindNotReadable, []string{"Hello.hello.k8s.io", "CustomResourceDefinition"}},
		"Forbidden": {"A missing right is named with the rule that gives it.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "hellos.hello.k8s.io is forbidden: …"}
		}, v1alpha1.ReasonSourceKindNotReadable, []string{"sluice.dev/aggregate-to-source-reader", "apiGroups: [hello.k8s.io]", "resources: [hellos]", "verbs: [get, list, watch]"}},
		"ForbiddenYet": {"A right that was applied with the Populator may be on its way.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "hellos.hello.k8s.io is forbidden: …"}
			s.populator.CreationTimestamp, s.now = metav1.Unix(100, 0), time.Unix(101, 0)
		}, "", nil},
		"ForbiddenStill": {"But not for long.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "hellos.hello.k8s.io is forbidden: …"}
			s.populator.CreationTimestamp, s.now = metav1.Unix(100, 0), time.Unix(103, 0)
		}, v1alpha1.ReasonSourceKindNotReadable, nil},
		"ForbiddenAndOurClockIsBehind": {"Nor for as long as two clocks differ.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "hellos.hello.k8s.io is forbidden: …"}
			s.populator.CreationTimestamp, s.now = metav1.Unix(100, 0), time.Unix(10, 0)
		}, v1alpha1.ReasonSourceKindNotReadable, nil},
		"Unavailable": {"Other trouble is told as it is.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "the server is currently unable"}
		}, v1alpha1.ReasonSourceKindNotReadable, []string{"the server is currently unable"}},
		"UnavailableLater": {"But does not withdraw what was accepted.", func(s *situation) {
			s.source = kinds.State{Status: kinds.NotReadable, Detail: "the server is currently unable"}
			judged(metav1.ConditionTrue)(s.populator)
		}, "", nil},
		"SourceStarting":        {"While the kind is being read there is no verdict.", func(s *situation) { s.source.Status = kinds.Starting }, "", nil},
		"SourceUnwatched":       {"Nor before.", func(s *situation) { s.source.Status = kinds.Unwatched }, "", nil},
		"RegistrationsStarting": {"Nor while registrations are being read.", func(s *situation) { s.registrations.Status = kinds.Starting }, "", nil},
		"TemplateWhileStarting": {"A mistake of the author's is told at once all the same.", func(s *situation) {
			s.registrations.Status = kinds.Starting
			s.populator.Spec.Worker.Image = ""
		}, v1alpha1.ReasonTemplateInvalid, []string{"spec.worker.image"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := good()
			tc.change(&s)
			v := judge(s)
			if v.reason != tc.reason || v.accepted != (tc.reason == v1alpha1.ReasonAccepted) {
				t.Fatalf("%s\njudge: %+v, want reason %q", tc.why, v, tc.reason)
			}
			for _, want := range tc.says {
				if !strings.Contains(v.message, want) {
					t.Errorf("%s\nmessage %q does not say %q", tc.why, v.message, want)
				}
			}
			if strings.HasSuffix(v.message, ".") || strings.Contains(v.message, "\n") {
				t.Errorf("message %q is not one sentence without a full stop", v.message)
			}
		})
	}
}
