package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/kinds"
)

var hello = schema.GroupKind{Group: "hello.k8s.io", Kind: "Hello"}

// registrations are VolumePopulators, or why there are none.
type registrations struct {
	objects []metav1.Object
	state   kinds.State
}

func (r registrations) List(schema.GroupKind) ([]metav1.Object, kinds.State) {
	return r.objects, r.state
}

func volumePopulator(kind string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"sourceKind": map[string]any{"group": hello.Group, "kind": kind}}}
	u.SetName("v")
	u.SetOwnerReferences(owners)
	return u
}

func populator(name string, created int64, status metav1.ConditionStatus, generation int64) v1alpha1.Populator {
	p := v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 2, CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       v1alpha1.PopulatorSpec{SourceKind: v1alpha1.SourceKind{Group: hello.Group, Kind: hello.Kind}},
	}
	if status != "" {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, ObservedGeneration: generation, Reason: "Why"}}
	}
	return p
}

func TestFind(t *testing.T) {
	ours := metav1.OwnerReference{APIVersion: "sluice.dev/v1alpha1", Kind: "Populator", Name: "p"}
	namesake := metav1.OwnerReference{APIVersion: "other.example/v1", Kind: "Populator", Name: "p"}
	readable := kinds.State{Status: kinds.Readable}
	cases := map[string]struct {
		reason     string
		populators []v1alpha1.Populator
		others     registrations
		want       Registration
	}{
		"Nobody":      {"Nobody registered the kind.", nil, registrations{state: readable}, Registration{State: Nobody}},
		"NoCRD":       {"Nor can anybody where VolumePopulator is not defined.", nil, registrations{state: kinds.State{Status: kinds.NotReadable}}, Registration{State: Nobody}},
		"Starting":    {"While registrations are being read one cannot tell.", nil, registrations{state: kinds.State{Status: kinds.Starting}}, Registration{State: Unknown}},
		"Accepted":    {"An accepted Populator serves, whatever else is known.", []v1alpha1.Populator{populator("a", 1, metav1.ConditionTrue, 2)}, registrations{state: kinds.State{Status: kinds.Starting}}, Registration{State: Served, Name: "a"}},
		"NotAccepted": {"One that is not accepted is named.", []v1alpha1.Populator{populator("a", 1, metav1.ConditionFalse, 2)}, registrations{state: readable}, Registration{State: NotAccepted, Name: "a", Reason: "Why"}},
		"NotJudged":   {"One that was not judged yet is waited for.", []v1alpha1.Populator{populator("a", 1, "", 0)}, registrations{state: readable}, Registration{State: Unknown}},
		"Changed":     {"So is one that changed since.", []v1alpha1.Populator{populator("a", 1, metav1.ConditionTrue, 1)}, registrations{state: readable}, Registration{State: Unknown}},
		"Rivals":      {"Of two that are not accepted the oldest is named.", []v1alpha1.Populator{populator("a", 2, metav1.ConditionFalse, 2), populator("b", 1, metav1.ConditionFalse, 2)}, registrations{state: readable}, Registration{State: NotAccepted, Name: "b", Reason: "Why"}},
		"Foreign":     {"Another controller's registration counts.", nil, registrations{[]metav1.Object{volumePopulator("Hello")}, readable}, Registration{State: Foreign, Name: "v"}},
		"OtherKind":   {"That of another kind does not.", nil, registrations{[]metav1.Object{volumePopulator("Other")}, readable}, Registration{State: Nobody}},
		"Ours":        {"One that was made for a Populator says nothing that the Populator does not.", nil, registrations{[]metav1.Object{volumePopulator("Hello", ours)}, readable}, Registration{State: Nobody}},
		"Namesake":    {"A Populator of another group is another controller's.", nil, registrations{[]metav1.Object{volumePopulator("Hello", namesake)}, readable}, Registration{State: Foreign, Name: "v"}},
		"ForeignToo":  {"Another controller serves where our Populator does not.", []v1alpha1.Populator{populator("a", 1, metav1.ConditionFalse, 2)}, registrations{[]metav1.Object{volumePopulator("Hello")}, readable}, Registration{State: Foreign, Name: "v"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(s); err != nil {
				t.Fatal(err)
			}
			f := &Finder{Cache: fake.NewClientBuilder().WithScheme(s).WithLists(&v1alpha1.PopulatorList{Items: tc.populators}).Build(), Kinds: tc.others}
			tc.want.Kind = hello
			got, err := f.Find(t.Context(), hello)
			if err != nil {
				t.Fatalf("Find: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nFind: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
