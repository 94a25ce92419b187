package explore

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
)

// TestMutants walks planners that each break one rule: a model that does not
// notice proves nothing about the one that keeps them all.
func TestMutants(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		breaks  func(affinity.Observed, affinity.Decision) affinity.Decision
		want    string
	}{
		"TouchesNobody": {
			setting: "MoveBetweenGenerations", want: "A1",
			breaks: func(_ affinity.Observed, d affinity.Decision) affinity.Decision {
				if s, ok := d.Step.(affinity.TouchPods); ok {
					s.Pods = nil
					d.Step = s
				}
				return d
			},
		},
		"MarksForEverybody": {
			setting: "MoveBetweenGenerations", want: "A1",
			breaks: func(_ affinity.Observed, d affinity.Decision) affinity.Decision {
				if s, ok := d.Step.(affinity.CreateMark); ok {
					s.Target = nil
					d.Step = s
				}
				return d
			},
		},
		"WritesWithoutALastLook": {
			setting: "MoveTwoPods", want: "A1",
			breaks: func(o affinity.Observed, d affinity.Decision) affinity.Decision {
				if o.Mark != nil { // as if nobody had been bound since the mark
					for i := range o.Pods {
						o.Pods[i].Spec.NodeName, o.Pods[i].Status.Phase = "", corev1.PodPending
					}
					return affinity.Next(o)
				}
				return d
			},
		},
		"TargetBeforeTheStorage": {
			setting: "Widen", want: "principle",
			breaks: func(o affinity.Observed, _ affinity.Decision) affinity.Decision {
				o.Change.Spec.StorageMoved = true
				return affinity.Next(o)
			},
		},
		"KeepsItsMark": {
			setting: "MoveBetweenGenerations", want: "mark",
			breaks: func(_ affinity.Observed, d affinity.Decision) affinity.Decision {
				if _, ok := d.Step.(affinity.DeleteMark); ok {
					return affinity.Decision{RequeueAfter: time.Hour}
				}
				return d
			},
		},
		"BlockedUnderItsMark": {
			setting: "MoveTwoPods", want: "A2",
			breaks: func(o affinity.Observed, d affinity.Decision) affinity.Decision {
				if _, ok := d.Step.(affinity.DeleteMark); ok && o.Change.Status.CompletedAt == nil && d.Why == affinity.WhyBlocked {
					st := *o.Change.Status.DeepCopy()
					if st.Phase == change.PhaseBlocked {
						return affinity.Decision{RequeueAfter: time.Hour}
					}
					st.Phase = change.PhaseBlocked
					return affinity.Decision{Step: affinity.WriteStatus{Status: st}}
				}
				return d
			},
		},
		"WritesOverOthers": {
			setting: "MoveBetweenGenerations", want: "A5",
			breaks: func(_ affinity.Observed, d affinity.Decision) affinity.Decision {
				if d.Why == affinity.WhyForeignEdit {
					return affinity.Decision{RequeueAfter: time.Hour}
				}
				return d
			},
		},
		"AbortsIntoTheTarget": {
			setting: "AlreadyMoved", want: "A3",
			breaks: func(_ affinity.Observed, d affinity.Decision) affinity.Decision {
				if w, ok := d.Step.(affinity.WriteStatus); ok && w.Status.Phase == change.PhaseSucceeded {
					w.Status.Phase = change.PhaseAborted
					d.Step = w
				}
				return d
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings[c.setting]
			s.Nodes = zones
			_, err := Walk(s, func(o affinity.Observed) affinity.Decision { return c.breaks(o, affinity.Next(o)) }, 1, 400000)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the walk ends with %v, want a breach of %s", err, c.want)
			}
		})
	}
}
