package populate_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func TestNextTrouble(t *testing.T) {
	lost := func(why string) outline {
		return outline{Step: "status Waiting VolumeLost", Event: "Normal VolumeLost", Why: why}
	}
	run(t, map[string]nextCase{
		"ClaimDeleted": {
			reason: "Deletion comes first, whatever else is missing",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(0, "")), func(o *populate.Observed) {
				o.Claim.DeletionTimestamp = ptr.To(at(0))
				o.Populator, o.Class, o.Source = nil, nil, populate.Source{}
			}),
			want: outline{Step: "delete prime prime at 30", Why: populate.WhyGone},
		},
		"ClaimGoneCached": {
			reason: "The claim's watch may lag behind that of its temporaries",
			o:      observed(prime(), func(o *populate.Observed) { o.Claim = nil }),
			want:   outline{Need: populate.NeedLive, Why: populate.WhyGone},
		},
		"ClaimGoneRetained": {
			reason: "A volume never handed over is temporary even where the class retains",
			o:      observed(live, prime(primeBound), volume(retained), func(o *populate.Observed) { o.Claim = nil }),
			want:   outline{Step: "policy of volume at 40 to Delete", Why: populate.WhyGone},
		},
		"ClaimGonePartial": {
			reason: "What the garbage collector was quicker with is marked",
			o:      observed(live, volume(retained, released), func(o *populate.Observed) { o.Claim = nil }),
			want:   outline{Step: "label volume at 40", Why: populate.WhyPartial},
		},
		"ImpostorPopulation": {
			reason: "The record of another claim UID goes",
			o:      observed(live, population(1), func(o *populate.Observed) { o.Population.Spec.ClaimUID = "other" }),
			want:   outline{Step: "delete Population population", Why: populate.WhyImpostor},
		},
		"PopulationDeleted": {
			reason: "A record deleted in flight is made anew beyond the numbers in use; what was left goes first",
			o:      observed(live, prime(primeBound), volume(), worker(workerRunning(time.Second))),
			want:   outline{Step: "delete prime prime at 30", Why: populate.WhyLeftBehind},
		},
		"PopulationDeletedAndCleared": {
			reason: "The numbers of temporaries that are gone may be in use by a late writer",
			o: observed(live, prime(primeDeleting, func(p *corev1.PersistentVolumeClaim) {
				p.DeletionTimestamp = ptr.To(at(2 * time.Minute))
			})),
			want: outline{Step: "create Population at 2", Why: populate.WhyCreatePopulation},
		},
		"PrimeOfAnotherNamespace": {
			reason: "What bears the claim's UID in somebody else's namespace is not of this claim",
			o: observed(live, population(1), prime(func(p *corev1.PersistentVolumeClaim) {
				p.Namespace, p.OwnerReferences = "other", nil
			})),
			want: outline{Step: "create prime " + name1, Why: populate.WhyCreatePrime},
		},
		"ClaimGoneWorkerOfAnotherNamespace": {
			reason: "Nothing outside the claim's namespace is swept",
			o: observed(live, worker(func(w *corev1.Pod) { w.Namespace = "other" }), func(o *populate.Observed) {
				o.Claim = nil
			}),
			want: outline{Why: populate.WhyGone},
		},
		"AttemptBeyondReach": {
			reason: "A number that only a forger writes does not count",
			o: observed(live, prime(func(p *corev1.PersistentVolumeClaim) {
				p.Labels[v1alpha1.LabelAttempt], p.Name = "2147483647", populate.TemporaryName(uid, math.MaxInt32)
			})),
			want: outline{Step: "create Population at 1", Why: populate.WhyCreatePopulation},
		},
		"NameTaken": {
			reason: "What is not ours is neither adopted nor deleted; the next attempt has another name",
			o: observed(live, population(1), prime(func(p *corev1.PersistentVolumeClaim) {
				p.Labels, p.OwnerReferences = nil, nil
			})),
			want: outline{Step: "status Waiting NameTaken", Event: "Warning NameTaken", Why: populate.WhyNameTaken},
		},
		"PrimeStripped": {
			reason: "A prime without its owner is not used, and not left",
			o:      observed(live, population(1), prime(func(p *corev1.PersistentVolumeClaim) { p.OwnerReferences = nil })),
			want:   outline{Step: "delete prime prime at 30", Why: populate.WhyLeftBehind},
		},
		"PrimeDeleted": {
			reason: "A prime that somebody deleted ends its attempt",
			o:      observed(live, population(1), prime(primeBound, primeDeleting), volume()),
			want:   lost(populate.WhyPrimeGoing),
		},
		"PrimeVanished": {
			reason: "The names of an attempt are not used again",
			o:      observed(live, population(1, recorded(1)), worker(workerEnded(0, ""))),
			want:   lost(populate.WhyLost),
		},
		"PrimeForeign": {
			reason: "A prime matched with somebody's volume gets no worker",
			o:      observed(live, population(1), prime(primeBound), volume(matched), rendered),
			want:   outline{Step: "status Waiting PrimeBoundToForeignVolume", Event: "Warning PrimeBoundToForeignVolume", Why: populate.WhyPrimeForeign},
		},
		"PrimeForeignByAge": {
			reason: "A volume older than its prime was not made for it",
			o: observed(live, population(1), prime(primeBound), rendered, volume(func(pv *corev1.PersistentVolume) {
				pv.CreationTimestamp = at(time.Minute)
			})),
			want: outline{Step: "status Waiting PrimeBoundToForeignVolume", Event: "Warning PrimeBoundToForeignVolume", Why: populate.WhyPrimeForeign},
		},
		"ForeignProtected": {
			reason: "Somebody's volume must outlive our prime",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonPrimeBoundToForeign, 0)), prime(primeBound), volume(matched)),
			want:   outline{Step: "policy of volume at 40 to Retain", Why: populate.WhyGiveBack},
		},
		"ForeignReleased": {
			reason: "Then its claimRef is cleared",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonPrimeBoundToForeign, 0)), volume(matched, foreignLabels, retained, released)),
			want:   outline{Step: "release volume at 40", Why: populate.WhyGiveBack},
		},
		"ForeignReleasedByAnother": {
			reason: "Also when a prime of another claim had it meanwhile",
			o: observed(live, population(1, failed(1, v1alpha1.ReasonPrimeBoundToForeign, 0)), volume(matched, foreignLabels, retained, released, func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "sluice-another-1", "another"
			})),
			want: outline{Step: "release volume at 40", Why: populate.WhyGiveBack},
		},
		"ForeignAvailable": {
			reason: "Only then is its policy restored",
			o: observed(live, population(1, failed(1, v1alpha1.ReasonPrimeBoundToForeign, 0)), volume(foreignLabels, retained, func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef, pv.Status.Phase = nil, corev1.VolumeAvailable
			})),
			want: outline{Step: "policy of volume at 40 to Delete", Why: populate.WhyGiveBack},
		},
		"ClaimGoneForeignHeld": {
			reason: "Somebody's volume is looked after until it can be given back, also when the claim is gone",
			o:      observed(live, volume(matched, foreignLabels, retained), func(o *populate.Observed) { o.Claim = nil }),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyGone},
		},
		"ClaimGoneForeignAvailable": {
			reason: "Of the claim the UID is enough, wherever it was",
			o: observed(live, volume(foreignLabels, retained, func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef, pv.Status.Phase = nil, corev1.VolumeAvailable
			}), func(o *populate.Observed) { o.Claim, o.Namespace, o.Name = nil, "", "" }),
			want: outline{Step: "policy of volume at 40 to Delete", Why: populate.WhyGiveBack},
		},
		"NodeGivenBack": {
			reason: "A prime whose selected node was removed is abandoned",
			o:      observed(live, waitsForConsumer, node, population(1), prime()),
			want:   outline{Step: "status Waiting ProvisioningFailed", Event: "Warning ProvisioningFailed", Why: populate.WhyNodeGone},
		},
		"NodeUnselected": {
			reason: "When the prime is gone the claim's node goes too",
			o:      observed(live, waitsForConsumer, node, population(1, failed(1, v1alpha1.ReasonProvisioningFailed, 0), onNode)),
			want:   outline{Step: "unselect node of 0b7e at 10", Why: populate.WhyUnselectNode},
		},
		"NodeKeptWhilePrimeGoes": {
			reason: "Not before the prime is gone",
			o:      observed(live, waitsForConsumer, node, population(1, failed(1, v1alpha1.ReasonProvisioningFailed, 0), onNode), prime(primeDeleting)),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyUnselectNode},
		},
		"NodeMatches": {
			reason: "A prime that keeps its node is waited for",
			o:      observed(waitsForConsumer, node, population(1), prime(primeNode)),
			want:   outline{Again: 2 * time.Second, Why: populate.WhyPrimePending},
		},
		"WorkerVanished": {
			reason: "A worker that was recorded and is gone may still write; its volume is not used",
			o:      observed(live, population(1, recorded(1)), prime(primeBound), volume(), rendered),
			want:   lost(populate.WhyLost),
		},
		"WorkerRefused": {
			reason: "A worker that was refused was never made",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), rendered, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonPodSecurityRefused, Message: "violates PodSecurity", At: now, Step: populate.Kind(populate.CreateWorker{})}
			}),
			want: outline{Step: "status Waiting PodSecurityRefused", Event: "Warning PodSecurityRefused", Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"WorkerVanishedAndStatusRefused": {
			reason: "A refusal of something else says nothing about the worker",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), rendered, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonRequestRefused, At: now.Add(-time.Minute), Step: populate.Kind(populate.WriteStatus{})}
			}),
			want: lost(populate.WhyLost),
		},
		"RebindRefused": {
			reason: "A step that the API server refuses is not repeated at once, and the record stands",
			o: observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(), worker(workerEnded(0, "")), func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonRequestRefused, Message: "forbidden", At: now, Step: populate.Kind(populate.Rebind{})}
			}),
			want: outline{Step: "status Populating RequestRefused", Event: "Warning RequestRefused", Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"PopulationRefused": {
			reason: "Without a record an event alone can tell why there is none",
			o: observed(live, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, Message: "exceeded quota", At: now, Step: populate.Kind(populate.CreatePopulation{})}
			}),
			want: outline{Event: "Warning QuotaExceeded", Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"PopulationRefusedAndTold": {
			reason: "It is told once",
			o: observed(live, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, At: now, Step: populate.Kind(populate.CreatePopulation{}), Told: true}
			}),
			want: outline{Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"PopulationRefusedAWhileAgo": {
			reason: "It is tried again without end: nothing else may tell that there is room",
			o: observed(live, func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonQuotaExceeded, At: now.Add(-10 * time.Second), Step: populate.Kind(populate.CreatePopulation{}), Told: true}
			}),
			want: outline{Step: "create Population at 1", Why: populate.WhyCreatePopulation},
		},
		"StatusRefused": {
			reason: "Where nothing can be told nothing is written",
			o: observed(live, population(1), prime(primeBound, primeDeleting), volume(), func(o *populate.Observed) {
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonRequestRefused, At: now, Step: populate.Kind(populate.WriteStatus{})}
			}),
			want: outline{Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"DeleteRefused": {
			reason: "Of a claim that is gone nothing can be told",
			o: observed(live, prime(), func(o *populate.Observed) {
				o.Claim = nil
				o.Refused = populate.Refusal{Reason: v1alpha1.ReasonRequestRefused, At: now, Step: populate.Kind(populate.DeletePrime{})}
			}),
			want: outline{Again: 10 * time.Second, Why: populate.WhyRefused},
		},
		"WorkerOfAnotherPrime": {
			reason: "A worker that a late writer made for another prime is not trusted",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(0, ""), func(w *corev1.Pod) {
				w.Annotations[populate.AnnotationPrimeUID] = "earlier"
			})),
			want: outline{Step: "status Waiting WorkerFailed", Event: "Warning WorkerFailed", Why: populate.WhyWorkerUntrusted},
		},
		"WorkerStopped": {
			reason: "A container that ended with 0 because it was told to has not finished",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(0, ""), func(w *corev1.Pod) {
				w.DeletionTimestamp = ptr.To(at(0))
			})),
			want: outline{Step: "status Waiting WorkerFailed", Event: "Warning WorkerFailed", Why: populate.WhyAttemptEnded},
		},
		"WorkerTimedOut": {
			reason: "The deadline has its own reason",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(func(w *corev1.Pod) {
				w.Status.Phase, w.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
			})),
			want: outline{Step: "status Waiting WorkerTimedOut", Event: "Warning WorkerTimedOut", Why: populate.WhyAttemptEnded},
		},
		"WorkerFailedForGood": {
			reason: "A worker may say that trying again is no use",
			o:      observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerEnded(3, `{"reason":"DigestMismatch","permanent":true}`))),
			want:   outline{Step: "status Failed DigestMismatch", Event: "Warning DigestMismatch", Why: populate.WhyAttemptEnded},
		},
		"WorkerFailedTooOften": {
			reason: "Attempts are capped",
			o: observed(live, population(1, recorded(1), func(st *v1alpha1.PopulationStatus) {
				st.Result = &v1alpha1.Result{Failures: 2, SourceGeneration: 7, PopulatorGeneration: 2}
			}), prime(primeBound), volume(), worker(workerEnded(1, ""))),
			want: outline{Step: "status Failed WorkerFailed", Event: "Warning WorkerFailed", Why: populate.WhyAttemptEnded},
		},
		"WorkerUnschedulable": {
			reason: "The scheduler's own words are told after a minute",
			o: observed(population(1, recorded(1)), prime(primeBound), volume(), worker(func(w *corev1.Pod) {
				w.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes", LastTransitionTime: at(time.Minute),
				}}
			})),
			want: outline{Step: "status Populating WorkerUnschedulable", Event: "Warning WorkerUnschedulable", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"WorkerUnschedulableMended": {
			reason: "A worker that no node takes yields to a changed populator, without waiting",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(func(w *corev1.Pod) {
				w.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes", LastTransitionTime: at(time.Second),
				}}
			}), func(o *populate.Observed) { o.Populator.Generation = 3 }),
			want: outline{Step: "status Waiting WorkerUnschedulable", Event: "Warning WorkerUnschedulable", Why: populate.WhyWorkerOutdated},
		},
		"WorkerImageMissing": {
			reason: "An image that cannot be pulled is told at once",
			o:      observed(population(1, recorded(1)), prime(primeBound), volume(), worker(imageMissing)),
			want:   outline{Step: "status Populating WorkerImageFailed", Event: "Warning WorkerImageFailed", Again: 5 * time.Minute, Why: populate.WhyWorkerPending},
		},
		"WorkerImageMended": {
			reason: "A worker that cannot start yields to a changed populator",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(imageMissing), func(o *populate.Observed) {
				o.Populator.Generation = 3
			}),
			want: outline{Step: "status Waiting WorkerImageFailed", Event: "Warning WorkerImageFailed", Why: populate.WhyWorkerOutdated},
		},
		"GrantRevoked": {
			reason: "A revoked grant stops what is not done yet",
			o: observed(live, population(1, recorded(1)), prime(primeBound), volume(), worker(workerRunning(time.Second)), func(o *populate.Observed) {
				o.Source.Namespace = "other"
			}),
			want: outline{Step: "status Waiting GrantRevoked", Event: "Warning GrantRevoked", Why: populate.WhyRevoked},
		},
		"VolumeReleased": {
			reason: "A volume once Released is lost, whatever the worker said",
			o:      observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(released), worker(workerEnded(0, ""))),
			want:   lost(populate.WhyLost),
		},
		"VolumePolicyChanged": {
			reason: "A volume whose policy is not what it was is not handed over",
			o:      observed(live, population(1, recorded(1)), prime(primeBound, primeDeleting), volume(retained), worker(workerEnded(0, ""))),
			want:   lost(populate.WhyLost),
		},
		"VolumeReplaced": {
			reason: "The volume must be the very one that was recorded",
			o: observed(live, population(1, recorded(1)), prime(primeBound), worker(workerEnded(0, "")), volume(func(pv *corev1.PersistentVolume) {
				pv.UID = "another"
			})),
			want: lost(populate.WhyLost),
		},
		"BoundElsewhere": {
			reason: "A claim bound to another volume is said so, never success",
			o:      observed(live, population(1, recorded(1)), claimBoundTo("other"), prime(primeBound), volume(), worker(workerEnded(0, ""))),
			want:   outline{Step: "status Failed BoundToForeignVolume", Event: "Warning BoundToForeignVolume", Why: populate.WhyBoundElsewhere},
		},
		"BoundElsewhereTold": {
			reason: "Then its temporaries go",
			o: observed(live, func(o *populate.Observed) {
				population(1, recorded(1))(o)
				claimBoundTo("other")(o)
				step, _ := populate.Next(withLive(*o)).Step.(populate.WriteStatus)
				o.Population.Status = step.Status
			}, prime(primeBound), volume(), worker(workerEnded(0, ""))),
			want: outline{Step: "delete prime prime at 30", Why: populate.WhyBoundElsewhere},
		},
		"HandedOverWithoutWorker": {
			reason: "After the hand-over the volume itself is the evidence",
			o:      observed(population(1, recorded(1), said(v1alpha1.PhaseBinding, v1alpha1.ReasonBinding)), claimBoundTo("pv"), volume(handedOver)),
			want:   outline{Step: "status Succeeded Populated", Event: "Normal Populated", Why: populate.WhySucceeded},
		},
	})
}

func TestNextBetweenAttempts(t *testing.T) {
	stayFailed := func(st *v1alpha1.PopulationStatus) { st.Phase = v1alpha1.PhaseFailed }
	run(t, map[string]nextCase{
		"BackOff": {
			reason: "The next attempt waits, the failed worker stays for its log",
			o:      observed(population(1, failed(1, v1alpha1.ReasonWorkerFailed, 0)), prime(primeDeleting), worker(workerEnded(1, ""))),
			want:   outline{Again: 10470 * time.Millisecond, Why: populate.WhyBackOff},
		},
		"BackOffStopsWorker": {
			reason: "A worker that still runs for an ended attempt is stopped",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonGrantRevoked, 0)), prime(primeBound), volume(), worker(workerRunning(0))),
			want:   outline{Step: "delete worker worker", Why: populate.WhyClearing},
		},
		"BackOffOver": {
			reason: "The failed worker makes room",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Minute)), worker(workerEnded(1, ""))),
			want:   outline{Step: "delete worker worker at 30", Why: populate.WhyClearing},
		},
		"BackOffOverSourceGone": {
			reason: "Without a source no attempt is made, and the log stays",
			o: observed(population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Minute)), worker(workerEnded(1, "")), func(o *populate.Observed) {
				o.Source = populate.Source{State: populate.SourceNotFound}
			}),
			want: outline{Step: "status Waiting SourceNotFound", Event: "Normal SourceNotFound", Again: 5 * time.Minute, Why: populate.WhyWaiting},
		},
		"PrimeLingers": {
			reason: "The next attempt waits until the last one's volume is gone",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Minute)), prime(primeDeleting)),
			want:   outline{Again: 30 * time.Second, Why: populate.WhyClearing},
		},
		"PrimeLingersTooLong": {
			reason: "A dead node must not hold up a claim for ever",
			o: observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Hour)), prime(func(p *corev1.PersistentVolumeClaim) {
				p.DeletionTimestamp = ptr.To(at(time.Minute))
			})),
			want: outline{Step: "allocate 2 at 20", Why: populate.WhyNextAttempt},
		},
		"Cleared": {
			reason: "When all is gone the next attempt is allocated",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, time.Minute))),
			want:   outline{Step: "allocate 2 at 20", Why: populate.WhyNextAttempt},
		},
		"ClockSetBack": {
			reason: "An end in the far future is a clock that jumped",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonWorkerFailed, -time.Hour))),
			want:   outline{Step: "allocate 2 at 20", Why: populate.WhyNextAttempt},
		},
		"Failed": {
			reason: "The last failed worker stays for an hour",
			o:      observed(population(1, failed(1, v1alpha1.ReasonDigestMismatch, 10*time.Minute), stayFailed), worker(workerEnded(1, ""))),
			want:   outline{Again: 50 * time.Minute, Why: populate.WhyKeepWorker},
		},
		"FailedLongAgo": {
			reason: "Then it goes",
			o:      observed(live, population(1, failed(1, v1alpha1.ReasonDigestMismatch, time.Hour), stayFailed), worker(workerEnded(1, ""))),
			want:   outline{Step: "delete worker worker at 30", Why: populate.WhyFailed},
		},
		"FailedAndCleared": {
			reason: "A failed population costs nothing",
			o:      observed(population(1, failed(1, v1alpha1.ReasonDigestMismatch, time.Hour), stayFailed)),
			want:   outline{Why: populate.WhyFailed},
		},
		"SourceChanged": {
			reason: "Editing the source re-arms a failed population at once",
			o: observed(live, population(1, failed(1, v1alpha1.ReasonDigestMismatch, time.Second), stayFailed), func(o *populate.Observed) {
				o.Source.Generation = 8
			}),
			want: outline{Step: "allocate 2 at 20", Why: populate.WhyNextAttempt},
		},
		"PopulatorChanged": {
			reason: "So does editing the populator",
			o: observed(live, population(1, failed(1, v1alpha1.ReasonTemplateFailed, time.Second), stayFailed), func(o *populate.Observed) {
				o.Populator.Generation = 3
			}),
			want: outline{Step: "allocate 2 at 20", Why: populate.WhyNextAttempt},
		},
	})
}

func withLive(o populate.Observed) populate.Observed {
	o.Live = true
	return o
}

func onNode(st *v1alpha1.PopulationStatus) { st.NodeName = "node-1" }

func foreignLabels(pv *corev1.PersistentVolume) {
	pv.Labels = map[string]string{
		v1alpha1.LabelClaimUID: string(uid), v1alpha1.LabelRole: populate.RoleForeign,
		populate.LabelReclaimPolicy: string(corev1.PersistentVolumeReclaimDelete),
	}
}

func imageMissing(w *corev1.Pod) {
	container(w, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
}
