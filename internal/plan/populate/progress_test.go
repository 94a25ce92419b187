package populate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	contract "github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// told is a worker's word on its progress, read some time ago.
func told(by string, p contract.Progress) func(*populate.Observed) {
	return func(o *populate.Observed) {
		o.Reading = populate.Reading{Progress: p, At: o.Now}
		for i := range o.Workers {
			if by == "" {
				o.Reading.Worker = o.Workers[i].UID
			}
		}
	}
}

func TestProgressOfARunningWorker(t *testing.T) {
	const mi = 1 << 20
	shown := func(p v1alpha1.Progress, age time.Duration) func(*v1alpha1.PopulationStatus) {
		return func(st *v1alpha1.PopulationStatus) {
			p := p
			when := at(age)
			p.UpdatedAt = &when
			st.Progress = &p
		}
	}
	forty := v1alpha1.Progress{Bytes: 40 * mi, TotalBytes: 100 * mi, Files: 2, Summary: "40Mi/100Mi 40%"}
	cases := map[string]struct {
		reason string
		before func(*v1alpha1.PopulationStatus)
		told   func(*populate.Observed)
		want   *v1alpha1.Progress
		// kept is how old the figures are that stay.
		kept time.Duration
	}{
		"First": {
			reason: "The first figures are shown at once",
			told:   told("", contract.Progress{Bytes: 40 * mi, TotalBytes: 100 * mi, Files: 2, BytesPerSecond: 20 * mi}),
			want:   &v1alpha1.Progress{Bytes: 40 * mi, TotalBytes: 100 * mi, Files: 2, BytesPerSecond: 20 * mi, Summary: "40Mi/100Mi 40%", Rate: "20Mi/s"},
		},
		"Nothing": {reason: "A worker that says nothing has no progress", told: told("", contract.Progress{})},
		"OfAnother": {
			reason: "What another worker told says nothing about this one",
			told:   told("another", contract.Progress{Bytes: 1}),
		},
		"TooSoon": {
			reason: "Progress is written every five seconds at most",
			before: shown(forty, 4*time.Second), told: told("", contract.Progress{Bytes: 41 * mi, TotalBytes: 100 * mi, Files: 2}),
			want: &forty, kept: 4 * time.Second,
		},
		"Later": {
			reason: "After that, what moved is shown",
			before: shown(forty, 5*time.Second), told: told("", contract.Progress{Bytes: 50 * mi, TotalBytes: 100 * mi, Files: 3}),
			want: &v1alpha1.Progress{Bytes: 50 * mi, TotalBytes: 100 * mi, Files: 3, Summary: "50Mi/100Mi 50%"},
		},
		"Unchanged": {
			reason: "What did not move is not written again, so that its age tells",
			before: shown(forty, time.Hour), told: told("", contract.Progress{Bytes: 40 * mi, TotalBytes: 100 * mi, Files: 2}),
			want: &forty, kept: time.Hour,
		},
		"Backwards": {
			reason: "Progress does not go backwards, whatever a worker says",
			before: shown(forty, time.Hour), told: told("", contract.Progress{Bytes: 1, TotalBytes: 100 * mi, Files: 1}),
			want: &forty, kept: time.Hour,
		},
		"Huge": {
			reason: "Nobody has written more than the volume holds",
			told:   told("", contract.Progress{Bytes: 1 << 62, TotalBytes: 1 << 62, Files: 1 << 62, BytesPerSecond: 1 << 62}),
			want:   &v1alpha1.Progress{Bytes: 1 << 30, TotalBytes: 1 << 30, Files: 1 << 30, BytesPerSecond: 1 << 30, Summary: "1Gi/1Gi 100%", Rate: "1Gi/s"},
		},
		"TotalTooSmall": {
			reason: "A total that was passed is no total",
			told:   told("", contract.Progress{Bytes: 1500, TotalBytes: 1000}),
			want:   &v1alpha1.Progress{Bytes: 1500, TotalBytes: 1500, Summary: "1.4Ki/1.4Ki 100%"},
		},
		"NoTotal": {
			reason: "Without a total there is no percentage",
			told:   told("", contract.Progress{Bytes: 1000}),
			want:   &v1alpha1.Progress{Bytes: 1000, Summary: "1000"},
		},
		"FilesOnly": {
			reason: "Empty files count too",
			told:   told("", contract.Progress{Files: 7}),
			want:   &v1alpha1.Progress{Files: 7, Summary: "7 files"},
		},
		"ClockSetBack": {
			reason: "A clock that was set back does not stop the figures",
			before: shown(forty, -time.Hour), told: told("", contract.Progress{Bytes: 50 * mi, TotalBytes: 100 * mi, Files: 3}),
			want: &v1alpha1.Progress{Bytes: 50 * mi, TotalBytes: 100 * mi, Files: 3, Summary: "50Mi/100Mi 50%"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changes := []func(*v1alpha1.PopulationStatus){recorded(1)}
			if tc.before != nil {
				changes = append(changes, tc.before)
			}
			o := observed(population(1, changes...), prime(primeBound), volume(), worker(workerRunning(time.Minute)), tc.told)
			step, ok := populate.Next(o).Step.(populate.WriteStatus)
			if !ok {
				t.Fatalf("%s: want WriteStatus, got %+v", tc.reason, populate.Next(o))
			}
			if tc.want != nil {
				when := at(tc.kept)
				w := *tc.want
				w.UpdatedAt = &when
				tc.want = &w
			}
			if diff := cmp.Diff(tc.want, step.Status.Progress); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			// Nothing is written or told a second time; what had to wait is not lost.
			o.Population.Status = step.Status
			var again time.Duration
			if name == "TooSoon" {
				again = time.Second
			}
			if d := populate.Next(o); d.Step != nil || d.Event != nil || d.RequeueAfter != again {
				t.Errorf("%s: then %+v", tc.reason, d)
			}
		})
	}
}

// TestProgressAloneIsNoEvent shows that figures that move are written, not told.
func TestProgressAloneIsNoEvent(t *testing.T) {
	o := observed(population(1, recorded(1)), prime(primeBound), volume(), worker(workerRunning(time.Minute)))
	step, ok := populate.Next(o).Step.(populate.WriteStatus)
	if !ok {
		t.Fatalf("want WriteStatus, got %+v", populate.Next(o))
	}
	o.Population.Status = step.Status
	told("", contract.Progress{Bytes: 1})(&o)
	d := populate.Next(o)
	if _, ok := d.Step.(populate.WriteStatus); !ok || d.Event != nil {
		t.Errorf("want a write and no event, got %+v", d)
	}
}

func TestAverageRateOfAWorkerThatEnded(t *testing.T) {
	o := observed(population(1, recorded(1)), claimBoundTo("pv"), prime(primeBound, primeDeleting), volume(handedOver),
		worker(workerEnded(0, `{"bytes":1048576,"files":1}`), func(w *corev1.Pod) {
			end := w.Status.ContainerStatuses[1].State.Terminated
			end.StartedAt, end.FinishedAt = at(5*time.Second), at(time.Second)
		}))
	step, ok := populate.Next(o).Step.(populate.WriteStatus)
	if !ok {
		t.Fatalf("want WriteStatus, got %+v", populate.Next(o))
	}
	want := &v1alpha1.Progress{Bytes: 1 << 20, TotalBytes: 1 << 20, Files: 1, BytesPerSecond: 1 << 18, Summary: "1Mi/1Mi 100%", Rate: "256Ki/s"}
	if diff := cmp.Diff(want, step.Status.Progress); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
