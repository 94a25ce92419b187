package populate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// dice makes choices out of fuzzed bytes.
type dice struct{ data []byte }

func (d *dice) roll(sides int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % sides
}

func (d *dice) yes() bool { return d.roll(2) == 1 }

func pick[T any](d *dice, choices ...T) T { return choices[d.roll(len(choices))] }

// arrange makes any observation at all out of bytes: also such as cannot be.
func arrange(data []byte) populate.Observed {
	d := &dice{data}
	o := observed()
	o.Live = d.yes()
	switch d.roll(8) {
	case 0:
		o.Claim = nil
	case 1:
		o.Claim.UID = "another"
	case 2:
		o.Claim.DeletionTimestamp = ptr.To(at(0))
	case 3:
		o.Claim.Spec.VolumeName = pick(d, "pv", "pv-2")
		o.Claim.Status.Phase = pick(d, corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost)
		if d.yes() {
			metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
		}
	case 4:
		o.Claim.Spec.DataSourceRef = nil
	}
	if o.Claim != nil && d.yes() {
		metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, selectedNode, pick(d, "node-1", "node-2"))
	}
	if o.Claim != nil && d.roll(4) == 0 {
		metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, v1alpha1.AnnotationPopulate, v1alpha1.PopulateImmediately)
	}
	if d.yes() {
		waitsForConsumer(&o)
	}
	switch d.roll(8) {
	case 0:
		o.Populator = nil
	case 1:
		o.Class = nil
	case 2:
		o.Source = populate.Source{State: populate.SourceState(d.roll(5)), Namespace: pick(d, "", "tenant", "other")}
	}
	if d.yes() {
		rendered(&o)
		o.Rendered.Attempt = int32(d.roll(3))
		if d.roll(4) == 0 {
			o.Rendered.Pod = nil
		}
	}
	if d.roll(4) == 0 {
		o.Refused = populate.Refusal{Reason: pick(d, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonNameTaken), At: now.Add(-time.Duration(d.roll(20)) * time.Second),
			Step: pick(d, populate.Kind(populate.CreatePrime{}), populate.Kind(populate.CreateWorker{}), populate.Kind(populate.Rebind{}))}
	}
	if d.roll(4) != 0 {
		arrangePopulation(d, &o)
	}
	for i := range d.roll(4) {
		meta := arrangeMeta(d, v1alpha1.RolePrime, i)
		p := corev1.PersistentVolumeClaim{ObjectMeta: meta}
		p.Spec.VolumeName = pick(d, "", "pv", "pv-2")
		p.Status.Phase = pick(d, corev1.ClaimPending, corev1.ClaimBound, corev1.ClaimLost)
		o.Primes = append(o.Primes, p)
	}
	for i := range d.roll(3) {
		w := corev1.Pod{ObjectMeta: arrangeMeta(d, v1alpha1.RoleWorker, i)}
		if d.roll(4) == 0 && w.Labels != nil && w.Name != "innocent" {
			w.Labels[v1alpha1.LabelRole], w.Name = v1alpha1.RoleScout, populate.ScoutName(uid, int32(1+d.roll(2)))
		}
		w.Status.Phase = pick(d, corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown)
		switch d.roll(4) {
		case 0:
			workerRunning(time.Duration(d.roll(5)) * time.Second)(&w)
		case 1:
			workerEnded(int32(d.roll(3)), pick(d, "", "{", `{"permanent":true}`))(&w)
		case 2:
			imageMissing(&w)
		}
		o.Workers = append(o.Workers, w)
	}
	for i := range d.roll(3) {
		o.Volumes = append(o.Volumes, arrangeVolume(d, i))
	}
	return o
}

func arrangePopulation(d *dice, o *populate.Observed) {
	population(int32(d.roll(4)))(o)
	p := o.Population
	if d.roll(6) == 0 {
		p.Spec.ClaimUID = "another"
	}
	if d.roll(6) == 0 {
		p.OwnerReferences = nil
	}
	if d.roll(6) == 0 {
		p.DeletionTimestamp = ptr.To(at(0))
	}
	p.Status.Phase = pick(d, "", v1alpha1.PhaseWaiting, v1alpha1.PhasePopulating, v1alpha1.PhaseBinding, v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed)
	if d.yes() {
		phase := p.Status.Phase
		recorded(int32(d.roll(3)))(&p.Status)
		p.Status.Phase = phase
		p.Status.Prime.UID = pick[types.UID](d, "prime", "other")
	}
	if d.yes() {
		p.Status.Result = &v1alpha1.Result{Attempt: int32(d.roll(3)), Succeeded: d.yes(), Failures: int32(d.roll(5))}
		if d.yes() {
			p.Status.Result.EndedAt = ptr.To(at(time.Duration(d.roll(200)) * time.Minute))
		}
	}
	p.Status.NodeName = pick(d, "", "node-1")
}

func arrangeMeta(d *dice, role string, i int) metav1.ObjectMeta {
	m := temporary(pick(d, "1", "2"), role)
	if i > 0 || d.yes() {
		m.UID = types.UID(fmt.Sprintf("%s-%d", role, i))
	}
	switch d.roll(10) {
	case 0:
		m.Labels = nil
	case 1:
		m.OwnerReferences = nil
	case 2:
		m.Annotations = map[string]string{v1alpha1.AnnotationNonce: "forged"}
	case 3:
		m.Name = "innocent"
	case 4:
		m.Labels[v1alpha1.LabelAttempt] = pick(d, "0", "-1", "99999999999", "x")
	}
	if d.roll(3) == 0 {
		m.DeletionTimestamp = ptr.To(at(time.Duration(d.roll(100)) * time.Second))
	}
	if d.yes() && m.Annotations != nil {
		m.Annotations[populate.AnnotationPrimeUID] = "prime"
	}
	return m
}

func arrangeVolume(d *dice, i int) corev1.PersistentVolume {
	var o populate.Observed
	volume()(&o)
	pv := o.Volumes[0]
	if i > 0 {
		pv.Name, pv.UID = "pv-2", "volume-2"
	}
	switch d.roll(5) {
	case 0:
		pv.Spec.ClaimRef = nil
	case 1:
		pv.Spec.ClaimRef.UID = pick[types.UID](d, uid, "prime-1", "another")
	case 2:
		handedOver(&pv)
	}
	if d.roll(3) == 0 {
		matched(&pv)
	}
	if d.yes() {
		retained(&pv)
	}
	if d.roll(4) == 0 {
		foreignLabels(&pv)
	}
	if d.roll(6) == 0 {
		pv.DeletionTimestamp = ptr.To(at(0))
	}
	pv.Status.Phase = pick(d, corev1.VolumeBound, corev1.VolumeReleased, corev1.VolumeAvailable, corev1.VolumePending, corev1.VolumeFailed)
	return pv
}

// FuzzNext shows the planner observations of any kind: it never panics, never
// asks and acts at once, never asks for what it has, never changes what it is
// shown, and never touches what is not its own.
func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	for seed := range 64 {
		data := make([]byte, 96)
		for i := range data {
			data[i] = byte((i*131 + seed*97 + i*i*seed) >> 2)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, before := arrange(data), arrange(data)
		d := populate.Next(o)
		if diff := cmp.Diff(before, o); diff != "" {
			t.Fatalf("the observation was changed: %s", diff)
		}
		if d.Need != 0 && (d.Step != nil || d.Event != nil) {
			t.Fatalf("Need and Step are exclusive: %+v", d)
		}
		if o.Live && d.Need&populate.NeedLive != 0 {
			t.Fatalf("asks for a live observation of a live observation: %+v", d)
		}
		if d.RequeueAfter < 0 || d.Why == "" {
			t.Fatalf("no reason, or a time in the past: %+v", d)
		}
		ownOnly(t, o, d.Step)
	})
}

// ownOnly checks what a step touches.
func ownOnly(t *testing.T, o populate.Observed, step populate.Step) {
	t.Helper()
	ours := func(m metav1.Object, role string) bool {
		return m.GetLabels()[v1alpha1.LabelClaimUID] == string(uid) && m.GetLabels()[v1alpha1.LabelRole] == role && m.GetName() != "innocent"
	}
	if s, ok := step.(populate.DeletePrime); ok {
		for i := range o.Primes {
			if p := &o.Primes[i]; p.Name == s.Name && p.UID == s.UID && !ours(p, v1alpha1.RolePrime) {
				t.Fatalf("deletes claim %q, which is not ours", p.Name)
			}
		}
		if s.UID == "" {
			t.Fatal("deletes without a UID")
		}
	}
	if s, ok := step.(populate.DeleteWorker); ok {
		for i := range o.Workers {
			if w := &o.Workers[i]; w.Name == s.Name && w.UID == s.UID && !ours(w, v1alpha1.RoleWorker) && !ours(w, v1alpha1.RoleScout) {
				t.Fatalf("deletes Pod %q, which is not ours", w.Name)
			}
		}
		if s.UID == "" {
			t.Fatal("deletes without a UID")
		}
	}
	if s, ok := step.(populate.Rebind); ok {
		if !o.Live || s.ResourceVersion == "" || s.UID == "" || s.ClaimRef.UID != uid {
			t.Fatalf("rebinds without all its preconditions: %+v", s)
		}
		for i := range o.Volumes {
			if pv := &o.Volumes[i]; pv.Name == s.Volume && (pv.Status.Phase != corev1.VolumeBound || pv.DeletionTimestamp != nil) {
				t.Fatalf("rebinds volume %q in phase %s", pv.Name, pv.Status.Phase)
			}
		}
	}
	if s, ok := step.(populate.SetReclaimPolicy); ok && (s.ResourceVersion == "" || s.UID == "") {
		t.Fatalf("changes a volume without preconditions: %+v", s)
	}
	if s, ok := step.(populate.DeletePopulation); ok && s.UID == "" {
		t.Fatal("deletes without a UID")
	}
}
