package populate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// outline is a decision without the contents of what it writes.
type outline struct {
	Need  populate.Need
	Step  string
	Event string
	Again time.Duration
	Why   string
}

func outlineOf(d populate.Decision) outline {
	out := outline{Need: d.Need, Again: d.RequeueAfter, Why: d.Why}
	if d.Step != nil {
		out.Step = describe(d.Step)
	}
	if d.Event != nil {
		out.Event = d.Event.Type + " " + d.Event.Reason
	}
	return out
}

func describe(s populate.Step) string {
	switch s := s.(type) {
	case populate.CreatePopulation:
		return fmt.Sprintf("create Population at %d", s.Population.Spec.Attempt)
	case populate.DeletePopulation:
		return fmt.Sprintf("delete Population %s", s.UID)
	case populate.Allocate:
		return fmt.Sprintf("allocate %d at %s", s.To, s.ResourceVersion)
	case populate.WriteStatus:
		return fmt.Sprintf("status %s %s", s.Status.Phase, readyReason(s.Status))
	case populate.CreatePrime:
		return "create prime " + s.Prime.Name
	case populate.CreateScout:
		return "create scout " + s.Scout.Name
	case populate.CreateWorker:
		return fmt.Sprintf("record %s, create worker %s", s.Record.Status.Prime.UID, s.Worker.Name)
	case populate.DeletePrime:
		return fmt.Sprintf("delete prime %s%s", s.UID, atVersion(s.ResourceVersion))
	case populate.DeleteWorker:
		return fmt.Sprintf("delete worker %s%s", s.UID, atVersion(s.ResourceVersion))
	case populate.Rebind:
		return fmt.Sprintf("rebind %s at %s to %s", s.UID, s.ResourceVersion, s.ClaimRef.UID)
	case populate.SetReclaimPolicy:
		return fmt.Sprintf("policy of %s at %s to %s", s.UID, s.ResourceVersion, s.Policy)
	case populate.LabelVolume:
		return fmt.Sprintf("label %s at %s", s.UID, s.ResourceVersion)
	case populate.ReleaseForeign:
		return fmt.Sprintf("release %s at %s", s.UID, s.ResourceVersion)
	case populate.UnselectNode:
		return fmt.Sprintf("unselect node of %s at %s", s.UID, s.ResourceVersion)
	case populate.CallPlugin:
		return callOf(s)
	case populate.StartFill:
		return fmt.Sprintf("record fill %s, %s", s.Record.Status.Fill.ID, callOf(s.Start))
	case populate.ReleasePrime:
		return fmt.Sprintf("release prime %s at %s, finalizers %q", s.UID, s.ResourceVersion, s.Finalizers)
	case populate.SetFinalizer:
		if !s.Present {
			return "remove finalizer"
		}
		return "set finalizer"
	}
	return "?"
}

func callOf(c populate.CallPlugin) string {
	text := fmt.Sprintf("%s of %s about %s", c.Call, c.Populator, c.ID)
	if c.HandedOver {
		text += ", handed over"
	}
	return text
}

func atVersion(rv string) string {
	if rv == "" {
		return ""
	}
	return " at " + rv
}

func readyReason(st v1alpha1.PopulationStatus) string {
	for _, c := range st.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Reason
		}
	}
	return ""
}

type nextCase struct {
	reason string
	o      populate.Observed
	want   outline
}

func run(t *testing.T, cases map[string]nextCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outlineOf(populate.Next(tc.o))); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

const name1 = "sluice-0b7e-1"

func TestNextHappyPath(t *testing.T) {
	run(t, map[string]nextCase{
		"NothingBegunCached": {
			reason: "An attempt is allocated on a live read of the claim only",
			o:      observed(),
			want:   outline{Need: populate.NeedLive, Why: populate.WhyCreatePopulation},
		},
		"NothingBegun": {
			reason: "A claim that waits for nothing gets its record with attempt 1 at once",
			o:      observed(live),
			want:   outline{Step: "create Population at 1", Why: populate.WhyCreatePopulation},
		},
		"Waited": {
			reason: "A record that waited gets its first attempt by a conditional write",
			o:      observed(live, population(0, said(v1alpha1.PhaseWaiting, v1alpha1.ReasonSourceNotFound))),
			want:   outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt},
		},
		"Allocated": {
			reason: "After the token comes the prime",
			o:      observed(live, population(1)),
			want:   outline{Step: "create prime " + name1, Why: populate.WhyCreatePrime},
		},
		"PrimePending": {
			reason: "A young phase is not worth a write",
			o:      observed(population(1), prime()),
			want:   outline{Again: 2 * time.Second, Why: populate.WhyPrimePending},
		},
		"PrimePendingForLong": {
			reason: "A phase that lasts is told, without an event",
			o:      observed(population(1), prime(func(p *corev1.PersistentVolumeClaim) { p.CreationTimestamp = at(3 * time.Second) })),
			want:   outline{Step: "status Provisioning Provisioning", Again: 5 * time.Minute, Why: populate.WhyPrimePending},
		},
		"PrimeBoundNotRendered": {
			reason: "The worker is rendered when its volume is known",
			o:      observed(population(1), prime(primeBound), volume()),
			want:   outline{Need: populate.NeedRender, Why: populate.WhyCreateWorker},
		},
		"SourceGoneAtRendering": {
			reason: "A source that went away may come back",
			o:      observed(live, population(1), prime(primeBound), volume(), notRendered(v1alpha1.ReasonSourceNotFound)),
			want:   outline{Step: "status Waiting SourceNotFound", Event: "Normal SourceNotFound", Again: 30 * time.Second, Why: populate.WhyWaiting},
		},
		"SourceUnreadableAtRendering": {
			reason: "A kind that cannot be read may be readable again",
			o:      observed(live, population(1), prime(primeBound), volume(), notRendered(v1alpha1.ReasonSourceKindNotReadable)),
			want:   outline{Step: "status Waiting SourceKindNotReadable", Event: "Warning SourceKindNotReadable", Again: 30 * time.Second, Why: populate.WhyWaiting},
		},
		"GrantGoneAtRendering": {
			reason: "A grant may be given again",
			o:      observed(live, population(1), prime(primeBound), volume(), notRendered(v1alpha1.ReasonNotGranted)),
			want:   outline{Step: "status Waiting GrantRevoked", Event: "Warning GrantRevoked", Again: 30 * time.Second, Why: populate.WhyWaiting},
		},
		"SourceInvalidAtRendering": {
			reason: "A source can be mended",
			o:      observed(live, population(1), prime(primeBound), volume(), notRendered(v1alpha1.ReasonInvalidSource)),
			want:   outline{Step: "status Waiting InvalidSource", Event: "Warning InvalidSource", Again: 30 * time.Second, Why: populate.WhyWaiting},
		},
		"TemplateFailed": {
			reason: "A template that cannot be evaluated ends the attempt for good",
			o:      observed(live, population(1), prime(primeBound), volume(), notRendered(v1alpha1.ReasonTemplateInvalid)),
			want:   outline{Step: "status Failed TemplateInvalid", Event: "Warning TemplateInvalid", Why: populate.WhyTemplate},
		},
		"PrimeBound": {
			reason: "The worker is created after its record",
			o:      observed(population(1), prime(primeBound), volume(), rendered),
			want:   outline{Step: "record prime, create worker " + name1, Why: populate.WhyCreateWorker},
		},
		"WorkerRuns": {
			reason: "A quick worker is not told",
			o:      observed(population(1, recorded(1)), prime(primeBound), volume(), worker(workerRunning(500*time.Millisecond))),
			want:   outline{Again: 2500 * time.Millisecond, Why: populate.WhyWorkerRunning},
		},
		"WorkerRunsForLong": {
			reason: "A worker that takes its time is told once",
			o:      observed(population(1, recorded(1)), prime(primeBound), volume(), worker(workerRunning(3*time.Second))),
			want:   outline{Step: "status Populating PopulationStarted", Event: "Normal PopulationStarted", Why: populate.WhyWorkerRunning},
		},
		"WorkerSucceededCached": {
			reason: "The hand-over is decided on a live observation only",
			o:      observed(population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(0, ""))),
			want:   outline{Need: populate.NeedLive, Why: populate.WhyHandOverPrime},
		},
		"WorkerSucceeded": {
			reason: "The prime goes first, held by the worker",
			o:      observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(0, ""))),
			want:   outline{Step: "delete prime prime", Why: populate.WhyHandOverPrime},
		},
		"PrimeGoing": {
			reason: "Then the volume is handed over, under the resourceVersion of the same read",
			o:      observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(), worker(workerEnded(0, ""))),
			want:   outline{Step: "rebind volume at 40 to 0b7e", Why: populate.WhyHandOverRebind},
		},
		"HandedOver": {
			reason: "Kubernetes binds the claim; nothing is written meanwhile",
			o:      observed(population(1, recorded(1)), prime(primeBound, primeDeleting), volume(handedOver), worker(workerEnded(0, ""))),
			want:   outline{Again: 3 * time.Second, Why: populate.WhyBinding},
		},
		"Bound": {
			reason: "Success is recorded with what the worker said, before the worker goes",
			o:      observed(population(1, recorded(1)), claimBoundTo("pv"), prime(primeBound, primeDeleting), volume(handedOver), worker(workerEnded(0, ""))),
			want:   outline{Step: "status Succeeded Populated", Event: "Normal Populated", Why: populate.WhySucceeded},
		},
		"Succeeded": {
			reason: "The worker goes, and the prime with it",
			o: observed(population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), claimBoundTo("pv"),
				prime(primeBound, primeDeleting), volume(handedOver), worker(workerEnded(0, ""))),
			want: outline{Step: "delete worker worker", Why: populate.WhySettled},
		},
		"Settled": {
			reason: "A settled claim costs nothing",
			o:      observed(population(1, said(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPopulated)), claimBoundTo("pv"), volume(handedOver)),
			want:   outline{Why: populate.WhySettled},
		},
		"BoundWithoutRecord": {
			reason: "A claim that is bound is left alone",
			o:      observed(claimBoundTo("other")),
			want:   outline{Why: populate.WhyNotAsked},
		},
	})
}

func TestNextAdmission(t *testing.T) {
	waits := func(reason, eventType string, again time.Duration) outline {
		return outline{Step: "status Waiting " + reason, Event: eventType + " " + reason, Again: again, Why: populate.WhyWaiting}
	}
	const long = 5 * time.Minute
	run(t, map[string]nextCase{
		"NobodyServes": {
			reason: "A kind that nobody of ours serves is none of our business",
			o:      observed(func(o *populate.Observed) { o.Populator = nil }),
			want:   outline{Why: populate.WhyNotAsked},
		},
		"PopulatorDeleted": {
			reason: "A claim that was begun says that its populator is gone",
			o:      observed(population(0), func(o *populate.Observed) { o.Populator = nil }),
			want:   waits(v1alpha1.ReasonUnrecognizedKind, "Warning", long),
		},
		"Plugin": {
			reason: "A populator without a worker needs somebody to call its plugin",
			o: observed(population(0), func(o *populate.Observed) {
				o.Populator.Spec.Worker, o.Populator.Spec.Plugin = nil, &v1alpha1.Plugin{Socket: "/run/sluice/x.sock"}
			}),
			want: waits(v1alpha1.ReasonPluginUnavailable, "Warning", long),
		},
		"Selector": {
			reason: "Nothing is provisioned for a claim with a selector",
			o:      observed(population(0), func(o *populate.Observed) { o.Claim.Spec.Selector = &metav1.LabelSelector{} }),
			want:   waits(v1alpha1.ReasonUnsupportedClaim, "Warning", long),
		},
		"NoClassWanted": {
			reason: "Nothing is provisioned for a claim of no class",
			o:      observed(population(0), func(o *populate.Observed) { o.Claim.Spec.StorageClassName = ptr.To("") }),
			want:   waits(v1alpha1.ReasonUnsupportedClaim, "Warning", long),
		},
		"ReadOnly": {
			reason: "A claim that nobody may write to cannot be filled",
			o: observed(population(0), func(o *populate.Observed) {
				o.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
			}),
			want: waits(v1alpha1.ReasonUnsupportedAccessMode, "Warning", long),
		},
		"ReadOnlyAllowed": {
			reason: "Unless its populator is told to fill it otherwise",
			o: observed(live, population(0), func(o *populate.Observed) {
				o.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
				o.Populator.Spec.ReadOnlyMany = true
			}),
			want: outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt},
		},
		"NoDefaultClass": {
			reason: "A default class may come later",
			o:      observed(population(0), func(o *populate.Observed) { o.Claim.Spec.StorageClassName, o.Class = nil, nil }),
			want:   waits(v1alpha1.ReasonClassNotFound, "Warning", long),
		},
		"ClassMissing": {
			reason: "The class may come later",
			o:      observed(population(0), func(o *populate.Observed) { o.Class = nil }),
			want:   waits(v1alpha1.ReasonClassNotFound, "Warning", long),
		},
		"ClassWithoutProvisioner": {
			reason: "A class of volumes made by hand cannot make a prime's",
			o:      observed(population(0), func(o *populate.Observed) { o.Class.Provisioner = "kubernetes.io/no-provisioner" }),
			want:   waits(v1alpha1.ReasonUnsupportedClaim, "Warning", long),
		},
		"ClassNamesPrime": {
			reason: "A Secret named after the claim would be looked for under the prime's name for ever",
			o: observed(population(0), func(o *populate.Observed) {
				o.Class.Parameters = map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "key-${pvc.name}"}
			}),
			want: waits(v1alpha1.ReasonUnsupportedClass, "Warning", long),
		},
		"NotGranted": {
			reason: "A source of another namespace needs a grant",
			o:      observed(population(0), func(o *populate.Observed) { o.Source.Namespace = "other" }),
			want:   waits(v1alpha1.ReasonNotGranted, "Warning", long),
		},
		"SourceMissing": {
			reason: "A source may come later, which is nobody's fault",
			o:      observed(population(0), func(o *populate.Observed) { o.Source = populate.Source{State: populate.SourceNotFound} }),
			want:   waits(v1alpha1.ReasonSourceNotFound, "Normal", long),
		},
		"SourceMissingWithoutRecord": {
			reason: "A claim that has to wait gets its record at once, without a live read",
			o:      observed(func(o *populate.Observed) { o.Source = populate.Source{State: populate.SourceNotFound} }),
			want:   outline{Step: "create Population at 0", Why: populate.WhyWaiting},
		},
		"SourceMissingYoungClaim": {
			reason: "The source may be in the same manifest as the claim",
			o: observed(func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceNotFound}
				o.Claim.CreationTimestamp = at(time.Second)
			}),
			want: outline{Again: 2 * time.Second, Why: populate.WhyWaiting},
		},
		"SourceUnreadable": {
			reason: "No watch tells when a kind can be read again",
			o: observed(population(0), func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceKindNotReadable, Detail: "forbidden"}
			}),
			want: waits(v1alpha1.ReasonSourceKindNotReadable, "Warning", 30*time.Second),
		},
		"SourceInvalid": {
			reason: "A source that breaks a rule gets no worker",
			o: observed(population(0), func(o *populate.Observed) {
				o.Source.Invalid, o.Source.InvalidReason = "fileName must be a plain file name", v1alpha1.ReasonInvalidSource
			}),
			want: waits(v1alpha1.ReasonInvalidSource, "Warning", long),
		},
		"NoConsumer": {
			reason: "A class that waits for a consumer is waited for",
			o:      observed(population(0), waitsForConsumer),
			want:   waits(v1alpha1.ReasonWaitingForConsumer, "Normal", long),
		},
		"NodeSelected": {
			reason: "The consumer's node is all that was waited for",
			o:      observed(live, population(0), waitsForConsumer, node),
			want:   outline{Step: "allocate 1 at 20", Why: populate.WhyFirstAttempt},
		},
		"SaidBefore": {
			reason: "Nothing is written or told twice",
			o: observed(func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceNotFound}
				population(0)(o)
				step, _ := populate.Next(*o).Step.(populate.WriteStatus)
				o.Population.Status = step.Status
				o.Now = o.Now.Add(time.Hour)
			}),
			want: outline{Again: long, Why: populate.WhyWaiting},
		},
		"QuotaExceeded": {
			reason: "A refusal is told at once, and the write tried again soon",
			o: observed(live, population(1), func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, Message: "exceeded quota", At: now.Add(-4 * time.Second), Step: populate.Kind(populate.CreatePrime{})}
			}),
			want: outline{Step: "status Waiting QuotaExceeded", Event: "Warning QuotaExceeded", Again: 6 * time.Second, Why: populate.WhyRefused},
		},
		"QuotaExceededAWhileAgo": {
			reason: "After ten seconds the refused write is tried again",
			o: observed(live, population(1), func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, At: now.Add(-10 * time.Second), Step: populate.Kind(populate.CreatePrime{})}
			}),
			want: outline{Step: "create prime " + name1, Why: populate.WhyCreatePrime},
		},
	})
}
