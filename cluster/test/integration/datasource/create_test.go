package datasource

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// createCase is one claim as a user writes it and what becomes of it.
type createCase struct {
	reason string
	given  sources
	// want is what is stored, unless the claim is refused.
	want sources
	// wantField is the field that the refusal names.
	wantField string
	// wantMessage is the refusal's word on it.
	wantMessage string
}

func TestCreate(t *testing.T) {
	cases := map[string]createCase{
		"BothEqual": {
			reason: "both fields may be set, as long as they say the same",
			given:  sources{local(helloGroup, "Hello", "a"), ref(helloGroup, "Hello", "a")},
			want:   sources{local(helloGroup, "Hello", "a"), ref(helloGroup, "Hello", "a")},
		},
		"SnapshotInDataSource": {
			reason: "dataSource is copied to dataSourceRef, so that readers need only the latter",
			given:  sources{DataSource: local(snapshotGroup, "VolumeSnapshot", "a")},
			want:   sources{local(snapshotGroup, "VolumeSnapshot", "a"), ref(snapshotGroup, "VolumeSnapshot", "a")},
		},
		"ClaimInDataSource": {
			reason: "cloning a claim is the other thing the old field could always say",
			given:  sources{DataSource: local("", "PersistentVolumeClaim", "a")},
			want:   sources{local("", "PersistentVolumeClaim", "a"), ref("", "PersistentVolumeClaim", "a")},
		},
		"SnapshotInDataSourceRef": {
			reason: "dataSourceRef is copied to dataSource, for readers from before it",
			given:  sources{DataSourceRef: ref(snapshotGroup, "VolumeSnapshot", "a")},
			want:   sources{local(snapshotGroup, "VolumeSnapshot", "a"), ref(snapshotGroup, "VolumeSnapshot", "a")},
		},
		"ClaimInDataSourceRef": {
			reason: "the new field takes the one core kind as well",
			given:  sources{DataSourceRef: ref("", "PersistentVolumeClaim", "a")},
			want:   sources{local("", "PersistentVolumeClaim", "a"), ref("", "PersistentVolumeClaim", "a")},
		},
		"UnknownInDataSource": {
			reason: "the old field ignored what it did not know, and still does: the claim is an empty one",
			given:  sources{DataSource: local(helloGroup, "Hello", "a")},
			want:   sources{},
		},
		"CoreKindInDataSource": {
			reason: "a core kind in the old field alone is ignored like any other unknown kind",
			given:  sources{DataSource: local("", "ConfigMap", "a")},
			want:   sources{},
		},
		"UnknownInDataSourceRef": {
			reason: "any custom resource may stand in the new field, whether its kind exists or not: this is what populators live on",
			given:  sources{DataSourceRef: ref(helloGroup, "Hello", "a")},
			want:   sources{local(helloGroup, "Hello", "a"), ref(helloGroup, "Hello", "a")},
		},
		"CoreKindInDataSourceRef": {
			reason:      "core kinds other than PersistentVolumeClaim never name data",
			given:       sources{DataSourceRef: ref("", "ConfigMap", "a")},
			wantField:   "spec.dataSourceRef",
			wantMessage: "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
		},
		"CoreKindInBoth": {
			reason:      "with the new field set the old one is looked at as well",
			given:       sources{local("", "Pod", "a"), ref("", "Pod", "a")},
			wantField:   "spec.dataSource",
			wantMessage: "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
		},
		"DifferentNames": {
			reason:      "two different sources are a contradiction",
			given:       sources{local(helloGroup, "Hello", "a"), ref(helloGroup, "Hello", "b")},
			wantField:   "spec",
			wantMessage: "must match dataSourceRef",
		},
		"DifferentKinds": {
			reason:      "the same name of another kind is another source",
			given:       sources{local(snapshotGroup, "VolumeSnapshot", "a"), ref(helloGroup, "Hello", "a")},
			wantField:   "spec",
			wantMessage: "must match dataSourceRef",
		},
		"DifferentGroups": {
			reason:      "the same kind of another group is another kind",
			given:       sources{local("hello.example.com", "Hello", "a"), ref(helloGroup, "Hello", "a")},
			wantField:   "spec",
			wantMessage: "must match dataSourceRef",
		},
		"NoName": {
			reason:      "a reference without a name is refused, not ignored",
			given:       sources{DataSourceRef: ref(helloGroup, "Hello", "")},
			wantField:   "spec.dataSourceRef.name",
			wantMessage: "Required value",
		},
		"Nothing": {
			reason: "a claim without a source stays without one",
			given:  sources{},
			want:   sources{},
		},
	}
	runCreate(t, server, cases)
}

// runCreate makes the claim of each case and compares what was stored.
func runCreate(t *testing.T, client kubernetes.Interface, cases map[string]createCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, err := create(t, client, tc.given)
			if tc.wantField != "" {
				wantInvalid(t, err, tc.wantField, tc.wantMessage, tc.reason)
				return
			}
			if err != nil {
				t.Fatalf("%s: create: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, sourcesOf(stored)); diff != "" {
				t.Errorf("%s: stored (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// wantInvalid checks that a request was refused as invalid because of a field.
func wantInvalid(t *testing.T, err error, field, message, reason string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("%s: got %v, want it refused as invalid", reason, err)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		t.Fatalf("%s: refusal %v carries no details", reason, err)
	}
	causes := status.Status().Details.Causes
	for _, c := range causes {
		if c.Field == field && strings.Contains(c.Message, message) {
			return
		}
	}
	t.Errorf("%s: refused for %s, want %s: %s", reason, describe(causes), field, message)
}

func describe(causes []metav1.StatusCause) string {
	text := ""
	for _, c := range causes {
		text += "\n\t" + c.Field + ": " + c.Message
	}
	return text
}
