package plantest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// cacheKinds are the kinds that the manager reads through separate watches.
var cacheKinds = []string{"claim", "prime", "worker", "population", "volume"}

// recoveries cost nothing: what stood still moves again, what was late arrives,
// a process that was told no forgets it by restarting.
func (s *state) recoveries() []action {
	var out []action
	if s.frozen != nil {
		out = append(out, action{name: "the cache of " + s.frozen.kind + "s catches up", do: func(s *state) { s.frozen = nil }})
	}
	if s.late != nil {
		out = append(out, action{name: "an old leader applies " + stepName(s.late), do: func(s *state) {
			step, uid, event := s.late, s.lateFor, s.lateEvent
			s.late, s.lateFor, s.lateEvent = nil, "", nil
			if s.apply(step, uid, true) {
				s.hear(event)
			}
		}})
	}
	return out
}

// users is what people do to a claim and around it.
func (s *state) users() []action {
	var out []action
	add := func(name string, do func(*state)) {
		out = append(out, action{name: "user " + name, cost: 1, do: func(s *state) { s.meddled = true; do(s) }})
	}
	out = s.neighbours(out)
	if s.sc.RootOwned && !s.allowsRoot {
		out = append(out, action{name: "user lets the worker be root", do: func(s *state) { s.allowsRoot, s.newSource = true, true }})
	}
	if s.sourceGen == 0 {
		out = append(out, action{name: "user creates the source", do: func(s *state) { s.sourceGen = 1 }})
	} else if s.sourceGen < 2 {
		add("changes the source", func(s *state) { s.sourceGen++ })
	}
	if s.sourceGen == 1 && !s.remadeSource {
		add("re-creates the source", func(s *state) { s.remadeSource, s.newSource = true, true })
	}
	if c := s.claim(); c == nil {
		if !s.remade && !s.sc.Doomed {
			out = append(out, action{name: "user re-creates the claim", do: func(s *state) {
				s.remade = true
				s.addPVC(s.sc.claim("claim-2"))
			}})
		}
	} else if c.DeletionTimestamp == nil && !s.deleted {
		add("deletes the claim", func(s *state) {
			s.deleted = true
			s.deletePVC(s.claim())
		})
		if s.sc.Doomed {
			out[len(out)-1].cost = 0
		}
	}
	if s.sc.elsewhere() {
		s.movers(add)
	}
	if s.revoked {
		out = append(out, action{name: "user grants the source again", do: func(s *state) { s.revoked = false }})
	}
	s.meddlers(add)
	if s.pop != nil {
		add("deletes the Population", func(s *state) { s.pop = nil })
	}
	for _, d := range s.vols {
		if d.pv.DeletionTimestamp == nil && !d.foreign && !d.destroyed {
			add("deletes volume "+d.pv.Name, func(s *state) {
				s.editPV(d, func(pv *corev1.PersistentVolume) { t := s.stamp(); pv.DeletionTimestamp = &t })
			})
			add("deletes volume "+d.pv.Name+" by force", func(s *state) { s.forced = true; s.dropDisk(d) })
		}
	}
	return out
}

// meddlers is what people do to primes and workers.
func (s *state) meddlers(add adder) {
	for _, p := range s.pvcs {
		if isPrime(p) && p.DeletionTimestamp == nil && p.Labels[v1alpha1.LabelRole] != "" {
			add("deletes prime "+p.Name, func(s *state) { s.deletePVC(p) })
		}
	}
	for _, p := range s.pvcs {
		if isPrime(p) && awaitsPlugin(p) {
			add("removes prime "+p.Name+" by force", func(s *state) { s.forced = true; s.dropPVC(p) })
		}
	}
	for _, p := range s.pods {
		if p.Labels[v1alpha1.LabelRole] == "" {
			continue
		}
		if p.DeletionTimestamp == nil {
			add("deletes worker "+p.Name, func(s *state) { s.deletePod(p) })
			if p.Spec.NodeName != "" {
				add("strips worker "+p.Name+" of its owner", func(s *state) {
					s.editPod(p, func(p *corev1.Pod) { p.OwnerReferences = nil })
				})
			}
		}
		if containerState(p).Running != nil {
			// The container runs on, and nothing in the API shows it.
			add("deletes worker "+p.Name+" by force", func(s *state) { s.dropPod(p) })
		}
	}
}

// movers is what people do to where temporaries live.
func (s *state) movers(add adder) {
	if !s.moved {
		add("changes the placement", func(s *state) { s.moved, s.newSource = true, true })
	}
	if s.sc.Placement == v1alpha1.PlacementSource && !s.wasRevoked {
		add("revokes the grant", func(s *state) { s.revoked, s.wasRevoked = true, true })
	}
	c := s.claim()
	if c == nil {
		return
	}
	if c.DeletionTimestamp == nil && !s.deleted {
		add("deletes the namespace", func(s *state) {
			s.deleted, s.pop = true, nil
			s.deletePVC(s.claim())
		})
	}
	if held(c) {
		add("strips the claim of the finalizer", func(s *state) {
			s.editPVC(s.claim(), func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		})
	}
}

// failures is what goes wrong by itself.
func (s *state) failures() []action {
	var out []action
	add := func(name string, do func(*state)) { out = append(out, action{name: name, cost: 1, do: do}) }
	for _, p := range s.pods {
		s.hardships(p, add)
		if containerState(p).Running != nil && p.DeletionTimestamp == nil && !s.sc.AlwaysFails {
			add("worker "+p.Name+" fails", func(s *state) { s.endWorker(p, 1, false) })
		}
		if isScout(p) && p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			add("kubelet refuses scout "+p.Name, func(s *state) {
				s.editPod(p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			})
		}
	}
	if s.sc.WaitForConsumer || s.sc.Immediately {
		for _, p := range s.pvcs {
			if isPrime(p) && p.Spec.VolumeName == "" && p.Annotations[selectedNode] != "" && p.DeletionTimestamp == nil {
				add("provisioner gives the node of "+p.Name+" back", func(s *state) {
					s.editPVC(p, func(p *corev1.PersistentVolumeClaim) { delete(p.Annotations, selectedNode) })
				})
			}
		}
	}
	if !s.clockSet {
		for _, by := range []time.Duration{-time.Hour, time.Hour} {
			add(fmt.Sprintf("all clocks are set by %s", by), func(s *state) {
				s.now, s.clockSet = s.now.Add(by), true
			})
		}
	}
	s.pluginTroubles(add)
	if s.frozen == nil {
		for _, kind := range cacheKinds {
			add("the cache of "+kind+"s stands still", func(s *state) { s.freeze(kind) })
		}
	}
	return out
}

// managerActions is what a manager may make of the state: the decision for each
// claim UID, applied, held back, failed, refused or half applied.
func (e *Explorer) managerActions(s *state) []action {
	var out []action
	for _, uid := range s.claimUIDs() {
		d := e.decide(s, uid)
		if d.Step == nil {
			if d.RequeueAfter > 0 && !s.slow {
				out = append(out, action{name: "time passes", do: func(s *state) {
					s.pass(d.RequeueAfter)
					s.slow = true
				}})
			}
			continue
		}
		name := stepName(d.Step)
		out = append(out, action{name: "manager: " + name + " (" + d.Why + ")", do: func(s *state) { s.carryOut(d, uid) }})
		if s.late == nil {
			out = append(out, action{name: "an old leader decides to " + name + " and halts", cost: 1, do: func(s *state) {
				s.late, s.lateFor, s.lateEvent = d.Step, uid, d.Event
			}})
		}
		if half, ok := halves(d.Step); ok {
			out = append(out, action{name: "manager: " + name + " is cut short", cost: 1, do: func(s *state) {
				s.apply(half, uid, false)
				s.refused = populate.Refusal{} // the process that remembered is gone
				s.forget()
			}})
		}
		if _, call := d.Step.(populate.CallPlugin); s.refused.Reason == "" && !call {
			out = append(out, action{name: "manager: " + name + " is refused", cost: 1, do: func(s *state) { s.refuse(d.Step, uid) }})
		}
	}
	if s.refused.Reason != "" {
		out = append(out, action{name: "manager restarts", do: func(s *state) {
			s.refused = populate.Refusal{}
			s.forget()
		}})
	}
	return out
}

func (s *state) pass(d time.Duration) {
	s.now = s.now.Add(d.Truncate(time.Second) + time.Second)
}

func stepName(step populate.Step) string {
	switch t := step.(type) {
	case populate.CreatePopulation:
		return "create Population"
	case populate.DeletePopulation:
		return "delete Population"
	case populate.Allocate:
		return "allocate"
	case populate.WriteStatus:
		return "write status " + string(t.Status.Phase) + "/" + ready(t.Status.Conditions)
	case populate.CreatePrime:
		return "create prime " + t.Prime.Name
	case populate.CreateScout:
		return "create scout " + t.Scout.Name
	case populate.CreateWorker:
		return "create worker " + t.Worker.Name
	case populate.StartFill:
		return "start fill " + t.Start.ID
	case populate.CallPlugin:
		return "call " + string(t.Call) + " " + t.ID
	case populate.ReleasePrime:
		return "release prime " + t.Name
	case populate.DeletePrime:
		return "delete prime " + t.Name
	case populate.DeleteWorker:
		return "delete worker " + t.Name
	case populate.Rebind:
		return "rebind " + t.Volume
	case populate.SetReclaimPolicy:
		return "set policy of " + t.Volume + " to " + string(t.Policy)
	case populate.LabelVolume:
		return "label " + t.Volume
	case populate.ReleaseForeign:
		return "release " + t.Volume
	case populate.UnselectNode:
		return "unselect node"
	case populate.SetFinalizer:
		if t.Present {
			return "set finalizer"
		}
		return "remove finalizer"
	}
	return "unknown step"
}

func ready(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Reason
		}
	}
	return ""
}
