package plantest_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/plantest"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// blind returns the planner with an observation that hides something from it.
func blind(hide func(*populate.Observed)) plantest.Planner {
	return func(o populate.Observed) populate.Decision {
		copyObjects(&o)
		hide(&o)
		return populate.Next(o)
	}
}

// rash returns the planner with its decisions changed.
func rash(change func(*populate.Observed, *populate.Decision)) plantest.Planner {
	return func(o populate.Observed) populate.Decision {
		d := populate.Next(o)
		change(&o, &d)
		return d
	}
}

func copyObjects(o *populate.Observed) {
	o.Claim, o.Population = o.Claim.DeepCopy(), o.Population.DeepCopy()
	primes, workers, volumes := o.Primes, o.Workers, o.Volumes
	o.Primes, o.Workers, o.Volumes = nil, nil, nil
	for i := range primes {
		o.Primes = append(o.Primes, *primes[i].DeepCopy())
	}
	for i := range workers {
		o.Workers = append(o.Workers, *workers[i].DeepCopy())
	}
	for i := range volumes {
		o.Volumes = append(o.Volumes, *volumes[i].DeepCopy())
	}
}

func handsOver(d *populate.Decision) bool {
	return d.Why == populate.WhyHandOverPrime && d.Need == 0
}

// mutant is a planner that breaks a rule, and where that shows.
type mutant struct {
	reason       string
	scenario     plantest.Scenario
	disturbances int
	only         []string
	planner      plantest.Planner
}

// TestMutants shows that the explorer can fail: each of these planners breaks a
// rule of the protocol, and each is caught.
func TestMutants(t *testing.T) {
	cases := map[string]mutant{
		"RebindOntoReleased": {
			reason:       "A volume that was Released may be half destroyed, whatever its UID and resourceVersion say",
			disturbances: 1,
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if d.Why != populate.WhyLost || d.Step == nil || len(o.Volumes) != 1 || o.Claim == nil {
					return
				}
				pv := &o.Volumes[0]
				d.Step = populate.Rebind{
					Volume: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
					ClaimRef: corev1.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: o.ClaimUID},
				}
			}),
		},
		"RebindWithoutResourceVersion": {
			reason:       "Without the precondition a late rebind lands on a volume that was Released meanwhile",
			disturbances: 2,
			only:         []string{"an old leader decides to rebind", "user deletes worker"},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.Rebind); ok {
					s.ResourceVersion = ""
					d.Step = s
				}
			}),
		},
		"RebindFromCache": {
			reason:       "A stale cache must not pass for a live read",
			disturbances: 2,
			planner: func(o populate.Observed) populate.Decision {
				stale := !o.Live
				o.Live = true
				d := populate.Next(o)
				if s, ok := d.Step.(populate.Rebind); ok && stale {
					s.ResourceVersion = ""
					d.Step = s
				}
				return d
			},
		},
		"WorkerBeforePrimeBound": {
			reason: "The worker would be scheduled before its volume is known",
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if d.Why != populate.WhyPrimePending {
					return
				}
				p := o.Primes[0].DeepCopy()
				w := plantest.WorkerPod()
				w.Namespace, w.Name, w.Labels, w.Annotations, w.OwnerReferences = p.Namespace, p.Name, p.Labels, p.Annotations, p.OwnerReferences
				w.Labels[v1alpha1.LabelRole] = v1alpha1.RoleWorker
				pop := o.Population
				d.Step = populate.CreateWorker{Worker: w, Record: populate.WriteStatus{
					Namespace: pop.Namespace, Name: pop.Name, UID: pop.UID, ResourceVersion: pop.ResourceVersion, Status: pop.Status,
				}}
			}),
		},
		"WorkerInsteadOfScout": {
			reason:   "A worker that the scheduler gives a volume to could write to somebody's before that is seen",
			scenario: plantest.Scenario{Immediately: true},
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				s, ok := d.Step.(populate.CreateScout)
				if !ok {
					return
				}
				w := s.Scout.DeepCopy()
				w.Name, w.Labels[v1alpha1.LabelRole] = o.Primes[0].Name, v1alpha1.RoleWorker
				pop := o.Population
				d.Step = populate.CreateWorker{Worker: w, Record: populate.WriteStatus{
					Namespace: pop.Namespace, Name: pop.Name, UID: pop.UID, ResourceVersion: pop.ResourceVersion, Status: pop.Status,
				}}
			}),
		},
		"ScoutMountsItsVolume": {
			reason:   "To mount a volume can be to format it, and gives it to a group: a scout may be given anybody's",
			scenario: plantest.Scenario{Immediately: true, ForeignVolume: true},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.CreateScout); ok {
					s.Scout.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: v1alpha1.TargetVolume, MountPath: v1alpha1.TargetPath}}
				}
			}),
		},
		"ScoutForgotten": {
			reason:   "A scout whose prime has its volume is of no use any more",
			scenario: plantest.Scenario{Immediately: true},
			planner: blind(func(o *populate.Observed) {
				if len(o.Primes) == 0 || o.Primes[0].Spec.VolumeName != "" {
					o.Workers = slices.DeleteFunc(o.Workers, func(w corev1.Pod) bool { return w.Labels[v1alpha1.LabelRole] == v1alpha1.RoleScout })
				}
			}),
		},
		"ForeignVolumeTrusted": {
			reason:   "A prime can be bound to somebody's volume, which must not be written to",
			scenario: plantest.Scenario{ForeignVolume: true},
			planner: blind(func(o *populate.Observed) {
				for i := range o.Volumes {
					o.Volumes[i].Annotations = nil
					o.Volumes[i].CreationTimestamp = metav1.NewTime(o.Now)
				}
			}),
		},
		"ForeignVolumeUnprotected": {
			reason:   "A foreign volume with policy Delete goes with the prime it is bound to",
			scenario: plantest.Scenario{ForeignVolume: true},
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.SetReclaimPolicy); ok && s.Policy == corev1.PersistentVolumeReclaimRetain {
					d.Step = populate.DeletePrime{Namespace: o.Primes[0].Namespace, Name: o.Primes[0].Name, UID: o.Primes[0].UID}
				}
			}),
		},
		"AdoptByName": {
			reason:   "What merely stands under a temporary's name is not ours",
			scenario: plantest.Scenario{NameTaken: true},
			planner: blind(func(o *populate.Observed) {
				if o.Population == nil || o.Claim == nil {
					return
				}
				for i := range o.Primes {
					adopt(&o.Primes[i], o, v1alpha1.RolePrime)
				}
				for i := range o.Workers {
					adopt(&o.Workers[i], o, v1alpha1.RoleWorker)
				}
			}),
		},
		"DeletePopulationWithoutUID": {
			reason:       "A late delete by name hits the record of the claim that came after",
			disturbances: 2,
			only:         []string{"an old leader decides to delete Population", "user deletes the claim"},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.DeletePopulation); ok {
					s.UID = ""
					d.Step = s
				}
			}),
		},
		"PrimeDeletedInAnyVersion": {
			reason:       "A prime may have been bound to somebody's volume since it was judged",
			scenario:     plantest.Scenario{ForeignVolume: true, Doomed: true},
			disturbances: 1,
			only:         []string{"an old leader decides to delete prime sluice-claim-1-1 and"},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.DeletePrime); ok {
					s.ResourceVersion = ""
					d.Step = s
				}
			}),
		},
		"WorkerMadeAgain": {
			reason:       "A worker deleted by force may still be writing when the next one starts on the same volume",
			disturbances: 1,
			planner: blind(func(o *populate.Observed) {
				if len(o.Workers) == 0 && len(o.Primes) == 1 && o.Population != nil {
					o.Population.Status.Prime = nil
				}
			}),
		},
		"AnyRefusalTakenForTheWorkers": {
			reason:       "That some write was refused does not say that the worker was never made",
			disturbances: 2,
			only:         []string{"user deletes worker", "manager: write status"},
			planner: blind(func(o *populate.Observed) {
				if o.Refused.Reason != "" {
					o.Refused.Step = populate.Kind(populate.CreateWorker{})
				}
			}),
		},
		"StoppedWorkerTrusted": {
			reason:       "A container that ends with 0 because its Pod was deleted has not finished",
			disturbances: 1,
			planner: blind(func(o *populate.Observed) {
				for i := range o.Workers {
					if s := o.Workers[i].Status.ContainerStatuses; len(s) > 0 && s[0].State.Terminated != nil {
						o.Workers[i].DeletionTimestamp = nil
					}
				}
			}),
		},
		"ExitCodeIgnored": {
			reason:   "A worker that failed has not filled its volume",
			scenario: plantest.Scenario{AlwaysFails: true},
			planner: blind(func(o *populate.Observed) {
				for i := range o.Workers {
					for j := range o.Workers[i].Status.ContainerStatuses {
						if end := o.Workers[i].Status.ContainerStatuses[j].State.Terminated; end != nil {
							end.ExitCode = 0
							o.Workers[i].Status.Phase = corev1.PodSucceeded
						}
					}
				}
			}),
		},
		"WorkerDeletedFirst": {
			reason: "The worker holds the prime until the volume is handed over",
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if handsOver(d) {
					d.Step = populate.DeleteWorker{Namespace: o.Workers[0].Namespace, Name: o.Workers[0].Name, UID: o.Workers[0].UID}
				}
			}),
		},
		"FilledVolumeSetToDelete": {
			reason:   "A volume that is handed over keeps the policy of its class",
			scenario: plantest.Scenario{Retain: true},
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				if pv := &o.Volumes; handsOver(d) && (*pv)[0].Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
					d.Step = populate.SetReclaimPolicy{
						Volume: (*pv)[0].Name, UID: (*pv)[0].UID, ResourceVersion: (*pv)[0].ResourceVersion,
						Policy: corev1.PersistentVolumeReclaimDelete,
					}
				}
			}),
		},
		"RetainLeaks": {
			reason:       "A volume never handed over goes with its attempt even where the class retains",
			scenario:     plantest.Scenario{Retain: true, AlwaysFails: true},
			disturbances: 0,
			planner: blind(func(o *populate.Observed) {
				for i := range o.Volumes {
					o.Volumes[i].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
				}
			}),
		},
		"NothingCleanedUp": {
			reason: "After success the worker goes",
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if d.Why == populate.WhySettled {
					*d = populate.Decision{Why: d.Why}
				}
			}),
		},
		"DeletionOverlooked": {
			reason:       "A claim that is being deleted is not worked for",
			disturbances: 1,
			planner: blind(func(o *populate.Observed) {
				if o.Claim == nil || o.Claim.DeletionTimestamp != nil {
					o.Claim = plantest.Claim(o.Name, string(o.ClaimUID))
				}
			}),
		},
		"NoBackOff": {
			reason:   "A bad source must not be tried in a hot loop",
			scenario: plantest.Scenario{AlwaysFails: true},
			planner: blind(func(o *populate.Observed) {
				if o.Population != nil && o.Population.Status.Result != nil {
					o.Population.Status.Result.EndedAt = ptr.To(metav1.NewTime(o.Now.Add(-time.Hour)))
				}
			}),
		},
		"NoCap": {
			reason:   "A bad source must not be tried for ever",
			scenario: plantest.Scenario{AlwaysFails: true},
			planner: blind(func(o *populate.Observed) {
				o.Populator = o.Populator.DeepCopy()
				o.Populator.Spec.MaxAttempts = 100
			}),
		},
		"SuccessClaimedTooSoon": {
			reason: "Success is said when the claim is bound, not when the worker is done",
			planner: blind(func(o *populate.Observed) {
				if len(o.Volumes) == 1 && o.Claim != nil && o.Volumes[0].Labels[v1alpha1.LabelRole] == populate.RoleFilled {
					o.Claim.Spec.VolumeName = o.Volumes[0].Name
					metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
				}
			}),
		},
		"AccessModesKept": {
			reason:   "A claim is not bound to a volume that lacks its access mode",
			scenario: plantest.Scenario{ReadOnly: true},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if s, ok := d.Step.(populate.Rebind); ok {
					s.AccessModes = nil
					d.Step = s
				}
			}),
		},
		"NeverQuiet": {
			reason: "A settled claim costs nothing",
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if d.Why == populate.WhySettled {
					d.RequeueAfter = time.Minute
				}
			}),
		},
		"NodeKept": {
			reason:       "A node that nothing can be provisioned for is given back to the scheduler",
			scenario:     plantest.Scenario{WaitForConsumer: true},
			disturbances: 1,
			planner: blind(func(o *populate.Observed) {
				for i := range o.Primes {
					metav1.SetMetaDataAnnotation(&o.Primes[i].ObjectMeta, "volume.kubernetes.io/selected-node", "node-1")
				}
			}),
		},
		"FillNotAwaited": {
			reason:   "A fill that was accepted has not succeeded",
			scenario: plantest.Scenario{Plugin: true},
			planner: blind(func(o *populate.Observed) {
				o.Answers = slices.Clone(o.Answers)
				for i := range o.Answers {
					if a := &o.Answers[i]; a.Call == populate.CallStart && !a.Pending {
						a.State = populate.FillSucceeded
					}
				}
			}),
		},
		"FailureOfFillIgnored": {
			reason:   "A fill that failed has not filled its volume",
			scenario: plantest.Scenario{Plugin: true, AlwaysFails: true},
			planner: blind(func(o *populate.Observed) {
				o.Answers = slices.Clone(o.Answers)
				for i := range o.Answers {
					if a := &o.Answers[i]; a.State == populate.FillFailed {
						a.State, a.Failure = populate.FillSucceeded, nil
					}
				}
			}),
		},
		"CleanupNotAwaited": {
			reason:       "The prime holds the volume until the plugin has stopped writing to it",
			scenario:     plantest.Scenario{Plugin: true},
			disturbances: 1,
			only:         []string{"user deletes the claim"},
			planner: blind(func(o *populate.Observed) {
				o.Answers = slices.Clone(o.Answers)
				for i := range o.Answers {
					if a := &o.Answers[i]; a.Call == populate.CallCleanup {
						a.Pending, a.Done = false, true
					}
				}
			}),
		},
		"CleanupForgotten": {
			reason:   "A plugin is told that its work is over also when it went well",
			scenario: plantest.Scenario{Plugin: true},
			planner: rash(func(o *populate.Observed, d *populate.Decision) {
				c, ok := d.Step.(populate.CallPlugin)
				if !ok || c.Call != populate.CallCleanup {
					return
				}
				for i := range o.Primes {
					if p := &o.Primes[i]; string(p.UID) == c.ID {
						d.Step = populate.ReleasePrime{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
					}
				}
			}),
		},
		"PrimeNotHeld": {
			reason:       "Without its finalizer a prime vanishes under the plugin's hands",
			scenario:     plantest.Scenario{Plugin: true},
			disturbances: 1,
			only:         []string{"user deletes"},
			planner: func(o populate.Observed) populate.Decision {
				copyObjects(&o)
				for i := range o.Primes {
					if o.Primes[i].DeletionTimestamp == nil {
						o.Primes[i].Finalizers = []string{v1alpha1.FinalizerPlugin}
					}
				}
				d := populate.Next(o)
				if s, ok := d.Step.(populate.CreatePrime); ok {
					s.Prime.Finalizers = nil
				}
				return d
			},
		},
		"LostFillBegunAgain": {
			reason:       "A plugin that has forgotten a fill has left a volume that is half written",
			scenario:     plantest.Scenario{Plugin: true},
			disturbances: 1,
			only:         []string{"plugin loses its memory"},
			planner: rash(func(_ *populate.Observed, d *populate.Decision) {
				if c, ok := d.Step.(populate.CallPlugin); ok && c.Call == populate.CallStatus {
					c.Call = populate.CallStart
					d.Step = c
				}
			}),
		},
		"DoubtfulStartRepeated": {
			reason:       "A plugin that had the call may have begun to write before it forgot",
			scenario:     plantest.Scenario{Plugin: true},
			disturbances: 2,
			only:         []string{"the answer to StartFill", "plugin loses its memory"},
			planner: blind(func(o *populate.Observed) {
				o.Answers = slices.Clone(o.Answers)
				for i := range o.Answers {
					o.Answers[i].Doubtful = false
				}
			}),
		},
		"PluginPolledHot": {
			reason:   "A plugin is asked again when it wants to be",
			scenario: plantest.Scenario{Plugin: true},
			planner: blind(func(o *populate.Observed) {
				o.Answers = slices.Clone(o.Answers)
				for i := range o.Answers {
					if a := &o.Answers[i]; !a.Pending && a.RetryAfter > 0 {
						a.At = o.Now.Add(-a.RetryAfter)
					}
				}
			}),
		},
	}
	maps.Copy(cases, elsewhereMutants())
	maps.Copy(cases, hardshipMutants())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := tc.scenario
			sc.Name = name
			e := plantest.Explorer{Planner: tc.planner, Scenario: sc, Disturbances: tc.disturbances, Only: tc.only, MaxStates: 30000}
			r := e.Explore()
			if r.Violation == nil {
				t.Fatalf("%s: not caught in %d states (complete %t)", tc.reason, r.States, r.Complete)
			}
			t.Logf("%s: caught after %d states by %s", tc.reason, r.States, r.Violation.Invariant)
		})
	}
}

func adopt(m metav1.Object, o *populate.Observed, role string) {
	m.SetLabels(map[string]string{
		v1alpha1.LabelClaimUID: string(o.ClaimUID), v1alpha1.LabelAttempt: "1", v1alpha1.LabelRole: role,
	})
	m.SetAnnotations(map[string]string{v1alpha1.AnnotationNonce: o.Population.Spec.Nonce})
	m.SetOwnerReferences([]metav1.OwnerReference{{UID: o.ClaimUID, Controller: ptr.To(true)}})
}
