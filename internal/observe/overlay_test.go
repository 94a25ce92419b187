package observe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

func stored(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}
}

func TestWith(t *testing.T) {
	before := populate.Observed{
		Namespace: "ns", Name: "claim", Live: true,
		Claim:   &corev1.PersistentVolumeClaim{ObjectMeta: stored("claim", "1")},
		Primes:  []corev1.PersistentVolumeClaim{{ObjectMeta: stored("prime", "1")}},
		Workers: []corev1.Pod{{ObjectMeta: stored("worker", "1")}},
		Volumes: []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "1"}}},
	}
	o := before
	o = With(o, &v1alpha1.Population{ObjectMeta: stored("claim", "2")})
	o = With(o, &corev1.PersistentVolumeClaim{ObjectMeta: stored("claim", "2")})
	o = With(o, &corev1.PersistentVolumeClaim{ObjectMeta: stored("prime", "2")})
	o = With(o, &corev1.PersistentVolumeClaim{ObjectMeta: stored("prime-2", "2")})
	o = With(o, &corev1.Pod{ObjectMeta: stored("worker", "2")})
	o = With(o, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "2"}})
	o = With(o, &corev1.ConfigMap{ObjectMeta: stored("files", "2")})

	if o.Population == nil || o.Claim.ResourceVersion != "2" || !o.Live {
		t.Errorf("population, claim or depth is not as written: %+v", o)
	}
	if len(o.Primes) != 2 || o.Primes[0].ResourceVersion != "2" || o.Primes[1].Name != "prime-2" {
		t.Errorf("primes are %+v", o.Primes)
	}
	if len(o.Workers) != 1 || o.Workers[0].ResourceVersion != "2" || len(o.Volumes) != 1 || o.Volumes[0].ResourceVersion != "2" {
		t.Errorf("workers are %+v, volumes %+v", o.Workers, o.Volumes)
	}
	if before.Primes[0].ResourceVersion != "1" || before.Workers[0].ResourceVersion != "1" || before.Volumes[0].ResourceVersion != "1" {
		t.Error("the first observation was changed: its objects belong to the cache")
	}
}

func TestWithout(t *testing.T) {
	at := time.Unix(1000, 0)
	before := populate.Observed{
		Population: &v1alpha1.Population{ObjectMeta: metav1.ObjectMeta{UID: "p"}},
		Primes:     []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, {ObjectMeta: metav1.ObjectMeta{UID: "b"}}},
		Workers:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "w"}}},
	}
	o := Without(Without(Without(before, "a", at), "w", at), "p", at)
	if o.Primes[0].DeletionTimestamp == nil || o.Primes[1].DeletionTimestamp != nil || o.Workers[0].DeletionTimestamp == nil ||
		o.Population.DeletionTimestamp == nil {
		t.Errorf("got %+v", o)
	}
	if before.Primes[0].DeletionTimestamp != nil || before.Workers[0].DeletionTimestamp != nil || before.Population.DeletionTimestamp != nil {
		t.Error("the first observation was changed: its objects belong to the cache")
	}
}
