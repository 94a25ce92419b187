package population

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/simulate"
)

// A way is a kind of population that the sweeps put through every failure.
type way struct {
	name, class string
	mode        corev1.PersistentVolumeMode
	// fails is how many of its workers fail before one succeeds.
	fails int
	// writes is more than it takes, which the sweep for crashes makes sure of.
	writes int
}

var ways = []way{
	{name: "immediate", class: simulate.ClassImmediate, mode: corev1.PersistentVolumeFilesystem, writes: 12},
	{name: "waiting", class: simulate.ClassWait, mode: corev1.PersistentVolumeFilesystem, writes: 14},
	{name: "block", class: simulate.ClassImmediate, mode: corev1.PersistentVolumeBlock, writes: 12},
	{name: "failing", class: simulate.ClassImmediate, mode: corev1.PersistentVolumeFilesystem, fails: 1, writes: 26},
}

// A trial is one population that is to be disturbed at one of its writes.
type trial struct {
	*scene
	way   way
	at    int
	what  string
	claim *corev1.PersistentVolumeClaim
}

func (r *trial) String() string { return fmt.Sprintf("%s, %s %d", r.way.name, r.what, r.at) }

// trials makes the sources of one way's trials, so that their claims can be
// made. The Populator is accepted by a manager that runs already.
func (w way) trials(t *testing.T, what string, upTo int) []*trial {
	t.Helper()
	first := &scene{namespace: namespace(t), kind: ownKind(t)}
	annotations := runs(100 * time.Millisecond)
	if w.fails > 0 {
		annotations[simulate.AnnotationExitCode], annotations[simulate.AnnotationFailures] = "3", fmt.Sprint(w.fails)
	}
	first.populator(t, annotations)
	var out []*trial
	for n := 1; n <= upTo; n++ {
		s := first
		if n > 1 {
			s = &scene{namespace: namespace(t), kind: first.kind}
		}
		s.source(t)
		claim := s.claim("claim", w.class)
		claim.Spec.VolumeMode = ptr.To(w.mode)
		out = append(out, &trial{scene: s, way: w, at: n, what: what, claim: claim})
	}
	return out
}

// begin makes the claims, and the Pods that they wait for.
func begin(t *testing.T, all []*trial) {
	t.Helper()
	for _, r := range all {
		create(t, r.claim)
		if r.way.class == simulate.ClassWait {
			create(t, consumer(r.namespace, r.claim.Name))
		}
	}
}

// over says what is missing until nothing remains to be done, told or not.
func (r *trial) over(ctx context.Context) error {
	if err := kube.Get(ctx, client.ObjectKeyFromObject(r.claim), r.claim); err != nil {
		return err
	}
	p := &v1alpha1.Population{}
	if err := kube.Get(ctx, client.ObjectKeyFromObject(r.claim), p); err != nil {
		return err
	}
	if r.claim.Status.Phase != corev1.ClaimBound || p.Status.Phase != v1alpha1.PhaseSucceeded {
		return fmt.Errorf("claim is %s, population: %s", r.claim.Status.Phase, describe(ctx, r.claim))
	}
	return leftIn(ctx, r.namespace)
}

// stands asserts what a user sees of a population that ended well.
func (r *trial) stands(t *testing.T, within time.Duration) {
	t.Helper()
	eventually(t, within, r.String()+": it is over", r.over)
	var all corev1.PersistentVolumeList
	eventually(t, within, r.String()+": one volume is left", func(ctx context.Context) error {
		if err := kube.List(ctx, &all); err != nil {
			return err
		}
		all.Items = slices.DeleteFunc(all.Items, func(v corev1.PersistentVolume) bool {
			return v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != r.namespace
		})
		if len(all.Items) != 1 {
			return fmt.Errorf("there are %d", len(all.Items))
		}
		return nil
	})
	v := all.Items[0]
	if v.Name != r.claim.Spec.VolumeName || v.Spec.ClaimRef.UID != r.claim.UID || v.Labels[v1alpha1.LabelRole] != "filled" ||
		v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("%s: volume %q has claimRef %+v, labels %v and policy %s; the claim is bound to %q",
			r, v.Name, v.Spec.ClaimRef, v.Labels, v.Spec.PersistentVolumeReclaimPolicy, r.claim.Spec.VolumeName)
	}
	if len(r.claim.Finalizers) != 1 {
		t.Errorf("%s: the claim has finalizers %q, want Kubernetes' own", r, r.claim.Finalizers)
	}
	told := events(t, r.claim)
	for _, e := range told {
		if strings.HasPrefix(e, corev1.EventTypeWarning) && r.way.fails == 0 {
			t.Errorf("%s: the claim has events %q, want no Warning", r, told)
		}
	}
}

// TestKilledAfterEachWrite kills the manager when each of many populations has
// got through a number of its writes, from the first to more than there are;
// the next manager brings every one of them to a good end.
func TestKilledAfterEachWrite(t *testing.T) {
	g := newGate(t)
	p := startManagerBy(t, g.kubeconfig, "--leader-elect=false", "--workers=256")
	var all []*trial
	for _, w := range ways {
		all = append(all, w.trials(t, "killed after write", w.writes)...)
	}
	stopAt := map[string]int{}
	for _, r := range all {
		stopAt[r.namespace] = r.at
	}
	g.set(func(namespace string, n int) verdict {
		if limit, ok := stopAt[namespace]; ok && n > limit {
			return hold
		}
		return nil
	})
	begin(t, all)
	for _, r := range all {
		eventually(t, 50*time.Second, r.String()+": it stands still", func(ctx context.Context) error {
			if g.hit(r.namespace) {
				return nil
			}
			return errors.Join(r.over(ctx), toldSuccess(t, r.claim))
		})
	}
	for i, r := range all {
		if last := i+1 == len(all) || all[i+1].way != r.way; last && g.hit(r.namespace) {
			t.Errorf("%s: population takes more than %d writes, so not every one was swept", r.way.name, r.at)
		}
	}
	p.kill(t)

	g.set(nil)
	startManagerBy(t, g.kubeconfig, "--leader-elect=false")
	for _, r := range all {
		r.stands(t, time.Minute)
	}
}

// TestKilledAgainAndAgain lets no manager get further than two writes. One would
// not do: a worker that was recorded and not made is not to be told from one
// that vanished, so that record and worker must be the same manager's.
func TestKilledAgainAndAgain(t *testing.T) {
	g := newGate(t)
	p := startManagerBy(t, g.kubeconfig, "--leader-elect=false")
	var all []*trial
	for _, w := range ways[:3] {
		all = append(all, w.trials(t, "killed again and again", 1)...)
	}
	two := func(_ string, n int) verdict {
		if n > 2 {
			return hold
		}
		return nil
	}
	g.set(two)
	begin(t, all)
	for managers := 1; ; managers++ {
		for _, r := range all {
			eventually(t, 50*time.Second, r.String()+": it stands still", func(ctx context.Context) error {
				if g.hit(r.namespace) {
					return nil
				}
				return r.over(ctx)
			})
		}
		if !slices.ContainsFunc(all, func(r *trial) bool { return g.hit(r.namespace) }) {
			t.Logf("it took %d managers", managers)
			break
		}
		p.kill(t)
		g.set(two)
		p = startManagerBy(t, g.kubeconfig, "--leader-elect=false")
	}
	for _, r := range all {
		r.stands(t, 20*time.Second)
	}
}

// TestEachWriteFailsOnce has each write of many populations fail once, in every
// way in which a write can fail.
func TestEachWriteFailsOnce(t *testing.T) {
	faults := []struct {
		name    string
		applies bool
		verdict
	}{
		{"conflict at write", false, refuse(http.StatusConflict, metav1.StatusReasonConflict)},
		{"timeout that did apply at write", true, pretend},
		{"internal error at write", false, refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		{"too many requests at write", false, refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
		{"connection cut before write", false, cut},
		{"connection cut after write", true, cutAfter},
	}
	g := newGate(t)
	startManagerBy(t, g.kubeconfig, "--leader-elect=false")
	var all []*trial
	fault := map[string]verdict{}
	at := map[string]int{}
	for _, w := range ways[:2] {
		for _, f := range faults {
			if w.class == simulate.ClassWait && !f.applies {
				continue // one more write, and that it was made is what matters
			}
			some := w.trials(t, f.name, w.writes-2)
			for _, r := range some {
				fault[r.namespace], at[r.namespace] = f.verdict, r.at
			}
			all = append(all, some...)
		}
	}
	g.set(func(namespace string, n int) verdict {
		if n == at[namespace] {
			return fault[namespace]
		}
		return nil
	})
	begin(t, all)
	hit := 0
	for _, r := range all {
		r.stands(t, time.Minute)
		if g.hit(r.namespace) {
			hit++
		}
	}
	t.Logf("%d writes failed once", hit)
}

// toldSuccess says what is missing until the claim's last event was told.
func toldSuccess(t *testing.T, claim *corev1.PersistentVolumeClaim) error {
	t.Helper()
	if told := events(t, claim); !slices.Contains(told, "Normal "+v1alpha1.ReasonPopulated) {
		return fmt.Errorf("events are %q", told)
	}
	return nil
}
