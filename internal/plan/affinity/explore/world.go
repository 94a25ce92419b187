// Package explore walks the planner of node affinity changes through a small
// model of a cluster: the scheduler with its stale view of volumes, bindings
// that take their time, the gate, the storage, a manager that dies between any
// two writes. It visits every order of what can happen, up to a number of
// disturbances, and checks the invariants A1 to A3 of the design in each state.
package explore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// pod is a Pod that uses the volume.
type pod struct {
	Name string
	Node string // bound to
	RV   int
}

// binding is one on its way: the scheduler has chosen a node, perhaps by an old
// view of the volume; the gate may have let it through, for one version of the
// Pod.
type binding struct {
	Pod, Node string
	Admitted  bool
	RV        int
}

// mark is the Lease of the volume.
type mark struct {
	UID    string
	Holder string
	Target string // JSON; "none" admits nobody
}

// World is one state of the model. It is copied, never shared.
type World struct {
	Change   *change.Change
	Gone     bool // the change was deleted
	Affinity string
	Labels   map[string]string
	RV       int
	Class    string // of the claim
	PVClass  string
	Pods     []pod
	Bindings []binding
	Mark     *mark
	Marks    int
	Moved    bool   // the storage serves the target, no longer what was before
	Foreign  bool   // somebody else edited the volume
	Stranded string // a Pod that was bound where the affinity did not admit it
	Seconds  int
	// Step is what the manager has decided and not done yet.
	Step affinity.Step
	// Seen is the generation of the change's spec that Step was decided on: its
	// writes are refused after another edit.
	Seen int64
	// Faults is how many disturbances have happened.
	Faults int
}

// Setting is what a walk is about; it does not change.
type Setting struct {
	Nodes       []affinity.Node
	From, To    *corev1.VolumeNodeAffinity
	Storage     change.StorageMove
	RunningPods change.RunningPods
	Class       string // ordered mode
	Infeasible  bool   // the driver refuses the class
	GateInForce bool
	Pods        []pod
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Start is the first state.
func (s Setting) Start() *World {
	w := &World{
		Change: &change.Change{
			ObjectMeta: metav1.ObjectMeta{Name: "change", UID: "change-uid", Generation: 1},
			Spec: change.Spec{
				VolumeName: "pv", NodeAffinity: s.To, AnyNode: s.To == nil, Storage: s.Storage, RunningPods: s.RunningPods, State: change.Active,
			},
		},
		Affinity: encode(s.From), Labels: map[string]string{}, Pods: slices.Clone(s.Pods), PVClass: "old", Class: "old",
		Moved: s.Storage != change.StorageMovesAfterNarrowing,
	}
	if s.Class != "" {
		w.Change.Spec.VolumeAttributesClassName = &s.Class
	}
	return w
}

func (w *World) clone() *World {
	c := *w
	c.Change = w.Change.DeepCopy()
	c.Labels = maps.Clone(w.Labels)
	c.Pods, c.Bindings = slices.Clone(w.Pods), slices.Clone(w.Bindings)
	if w.Mark != nil {
		m := *w.Mark
		c.Mark = &m
	}
	return &c
}

// key tells states apart.
func (w *World) key() string {
	out, err := json.Marshal(w)
	if err != nil {
		panic(err) // plain data
	}
	return fmt.Sprintf("%s %T", out, w.Step)
}

// observe is what the manager sees, all of it live.
func (w *World) observe(s Setting) affinity.Observed {
	o := affinity.Observed{
		Now: epoch.Add(time.Duration(w.Seconds) * time.Second), Live: true, Change: w.Change.DeepCopy(), Nodes: s.Nodes,
		Gate: affinity.Gate{InForce: s.GateInForce}, AttachRequired: true,
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid", ResourceVersion: fmt.Sprint(w.RV), Labels: maps.Clone(w.Labels)}}
	pv.Spec.NodeAffinity = decode(w.Affinity)
	pv.Spec.VolumeAttributesClassName = named(w.PVClass)
	o.Volume = pv
	o.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim-uid"}}
	o.Claim.Spec.VolumeAttributesClassName = named(w.Class)
	if w.Class != w.PVClass {
		o.Claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: w.Class, Status: corev1.PersistentVolumeClaimModifyVolumeInProgress}
		if s.Infeasible && w.Class == s.Class {
			o.Claim.Status.ModifyVolumeStatus.Status = corev1.PersistentVolumeClaimModifyVolumeInfeasible
		}
	}
	for _, p := range w.Pods {
		obj := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: p.Name, UID: types.UID(p.Name), ResourceVersion: fmt.Sprint(p.RV)}}
		obj.Spec.NodeName, obj.Status.Phase = p.Node, corev1.PodPending
		if p.Node != "" {
			obj.Status.Phase = corev1.PodRunning
		}
		o.Pods = append(o.Pods, obj)
	}
	if w.Mark != nil {
		o.Mark = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "mark", UID: types.UID(w.Mark.UID), CreationTimestamp: metav1.NewTime(epoch)}}
		o.Mark.Spec.HolderIdentity = &w.Mark.Holder
	}
	return o
}

func named(class string) *string {
	if class == "" {
		return nil
	}
	return &class
}

func (w *World) node(s Setting, name string) map[string]string {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n.Labels
		}
	}
	return nil
}

// reachable says whether the storage serves the volume on a node.
func (w *World) reachable(s Setting, node string) bool {
	set := nodeset.Of(s.From)
	if w.Moved {
		set = nodeset.Of(s.To)
	}
	return set.Has(w.node(s, node))
}

func encode(a *corev1.VolumeNodeAffinity) string {
	if a == nil {
		return ""
	}
	out, err := json.Marshal(a)
	if err != nil {
		panic(err) // plain data
	}
	return string(out)
}

func decode(text string) *corev1.VolumeNodeAffinity {
	if text == "" {
		return nil
	}
	var a corev1.VolumeNodeAffinity
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		panic(err) // written by encode
	}
	return &a
}
