package explore

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// move is one thing that can happen next.
type move struct {
	name  string
	fault bool
	next  *World
}

// moves are all things that can happen next.
func (w *World) moves(s Setting, next func(affinity.Observed) affinity.Decision, faults int) []move {
	var out []move
	add := func(name string, fault bool, do func(*World)) {
		c := w.clone()
		if fault {
			c.Faults++
		}
		do(c)
		out = append(out, move{name, fault, c})
	}
	w.manage(s, next, add)
	w.schedule(s, add)
	w.moveStorage(s, add)
	if w.Faults < faults {
		w.disturb(add)
	}
	return out
}

// manage is the manager: it decides on what it sees, and does it later.
func (w *World) manage(s Setting, next func(affinity.Observed) affinity.Decision, add func(string, bool, func(*World))) {
	if w.Step != nil {
		add(fmt.Sprintf("manager does %T", w.Step), false, func(c *World) { c.apply(c.Step); c.Step = nil })
		return
	}
	if w.Gone {
		return
	}
	d := next(w.observe(s))
	switch {
	case d.Step != nil:
		add(fmt.Sprintf("manager decides %T (%s)", d.Step, d.Why), false, func(c *World) { c.Step, c.Seen = d.Step, c.Change.Generation })
	case d.RequeueAfter > 0 && d.RequeueAfter <= 45*1e9 && w.Change.Status.Journal != nil && w.Seconds < 200:
		add("time passes", false, func(c *World) { c.Seconds += int(d.RequeueAfter.Seconds()) + 1 })
	}
}

// apply is the API server.
func (w *World) apply(step affinity.Step) {
	stale := w.Seen != w.Change.Generation
	switch step := step.(type) {
	case affinity.WriteStatus:
		if stale {
			return
		}
		w.Change.Status = *step.Status.DeepCopy()
	case affinity.SetFinalizer:
		w.Change.Finalizers = nil
		if step.Present {
			w.Change.Finalizers = []string{change.Finalizer}
		}
	case affinity.DeleteChange:
		w.Gone = true
	case affinity.CreateMark:
		if w.Mark != nil {
			return
		}
		w.Marks++
		w.Mark = &mark{UID: fmt.Sprintf("mark-%d", w.Marks), Holder: string(w.Change.UID), Target: encode(step.Target)}
	case affinity.DeleteMark:
		if w.Mark != nil && w.Mark.UID == string(step.UID) {
			w.Mark = nil
		}
	case affinity.TouchPods:
		w.touch(step)
		if stale {
			return
		}
		w.Change.Status = *step.Status.DeepCopy()
	case affinity.WriteVolume:
		if step.ResourceVersion != strconv.Itoa(w.RV) {
			return
		}
		w.RV++
		w.Affinity = step.Affinity
		for k, v := range step.Labels {
			if v == "" {
				delete(w.Labels, k)
			} else {
				w.Labels[k] = v
			}
		}
	case affinity.SetClass:
		w.Class = ""
		if step.Class != nil {
			w.Class = *step.Class
		}
	case affinity.EvictPod:
		w.Pods = slices.DeleteFunc(w.Pods, func(p pod) bool { return p.Name == step.Name })
	}
}

func (w *World) touch(step affinity.TouchPods) {
	for _, name := range step.Pods {
		for i := range w.Pods {
			if w.Pods[i].Name == name.Name {
				w.Pods[i].RV++
			}
		}
	}
}

// schedule is the scheduler with its stale view, the gate and the commit of a
// binding, each a moment of its own.
func (w *World) schedule(s Setting, add func(string, bool, func(*World))) {
	for _, p := range w.Pods {
		if p.Node != "" || slices.ContainsFunc(w.Bindings, func(b binding) bool { return b.Pod == p.Name }) {
			continue
		}
		for _, n := range s.Nodes {
			// By the volume as it is, or as the scheduler's cache still has it.
			if nodeset.Of(decode(w.Affinity)).Has(n.Labels) || nodeset.Of(s.From).Has(n.Labels) {
				add(fmt.Sprintf("scheduler chooses %s for %s", n.Name, p.Name), false, func(c *World) {
					c.Bindings = append(c.Bindings, binding{Pod: p.Name, Node: n.Name})
				})
			}
		}
	}
	for i := range w.Bindings {
		w.bind(s, i, add)
	}
}

// bind is what becomes of a binding next: it is sent, judged, or committed.
func (w *World) bind(s Setting, i int, add func(string, bool, func(*World))) {
	switch b := w.Bindings[i]; {
	case b.Admitted:
		add("binding of "+b.Pod+" commits", false, func(c *World) { c.commit(s, i) })
	case !s.GateInForce:
		add("binding of "+b.Pod+" is sent", false, func(c *World) { c.Bindings[i].Admitted = true })
	default:
		add("gate judges binding of "+b.Pod, false, func(c *World) { c.judge(s, i) })
	}
}

// commit is the transaction behind a binding, under the version that the gate
// made its precondition.
func (w *World) commit(s Setting, i int) {
	b := w.Bindings[i]
	w.Bindings = slices.Delete(w.Bindings, i, i+1)
	for k := range w.Pods {
		p := &w.Pods[k]
		if p.Name != b.Pod || p.Node != "" || (s.GateInForce && p.RV != b.RV) {
			continue
		}
		p.Node, p.RV = b.Node, p.RV+1
		if !nodeset.Of(decode(w.Affinity)).Has(w.node(s, b.Node)) {
			w.Stranded = b.Pod
		}
	}
}

// judge is the gate: it reads the Pod, the mark and the volume, in one moment.
func (w *World) judge(s Setting, i int) {
	labels := w.node(s, w.Bindings[i].Node)
	allowed := nodeset.Of(decode(w.Affinity)).Has(labels)
	if w.Mark != nil {
		allowed = allowed && nodeset.Of(decode(w.Mark.Target)).Has(labels)
	}
	if !allowed {
		w.Bindings = slices.Delete(w.Bindings, i, i+1)
		return
	}
	for _, p := range w.Pods {
		if p.Name == w.Bindings[i].Pod {
			w.Bindings[i].Admitted, w.Bindings[i].RV = true, p.RV
		}
	}
}

// moveStorage is the person, or the driver, that moves the storage when told
// that it is safe.
func (w *World) moveStorage(s Setting, add func(string, bool, func(*World))) {
	told := w.Change.Status.Phase == change.PhaseStorageMoving && w.Change.Status.Journal != nil && w.Change.Status.Journal.StorageMovedAt == nil
	switch {
	case s.Storage != change.StorageMovesAfterNarrowing:
	case s.Class == "" && told && !w.Moved && w.Change.Spec.State == change.Active:
		add("storage moves", false, func(c *World) {
			c.Moved, c.Change.Spec.StorageMoved = true, true
			c.Change.Generation++
		})
	case s.Class != "" && w.Class == s.Class && w.PVClass != s.Class && !s.Infeasible:
		add("driver moves the storage", false, func(c *World) { c.Moved, c.PVClass = true, s.Class })
	case s.Class != "" && w.Class != s.Class && w.PVClass == s.Class:
		add("driver moves the storage back", false, func(c *World) { c.Moved, c.PVClass = false, w.Class })
	}
}

// disturb is all that goes wrong.
func (w *World) disturb(add func(string, bool, func(*World))) {
	if w.Step != nil {
		add(fmt.Sprintf("manager dies before %T", w.Step), true, func(c *World) { c.Step = nil })
		if t, ok := w.Step.(affinity.TouchPods); ok {
			add("manager dies in TouchPods", true, func(c *World) { c.touch(t); c.Step = nil })
		}
	}
	if w.Change.Spec.State == change.Active && w.Change.Status.CompletedAt == nil {
		add("user aborts", true, func(c *World) {
			c.Change.Spec.State = change.Aborted
			c.Change.Generation++
		})
	}
	if !w.Foreign && w.Change.Status.Journal != nil && w.Change.Status.CompletedAt == nil {
		add("somebody edits the volume", true, func(c *World) {
			c.Foreign, c.RV = true, c.RV+1
			c.Affinity = `{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"foreign","operator":"Exists"}]}]}}`
		})
		add("somebody touches the volume", true, func(c *World) { c.RV++ })
	}
	for i, p := range w.Pods {
		if p.Node != "" {
			add("Pod "+p.Name+" ends", true, func(c *World) { c.Pods = slices.Delete(c.Pods, i, i+1) })
		}
	}
}
