package observe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/plan/populate"
)

const testClaim = types.UID("0b1c")

// testMemory is a Memory whose clock and caches stand where the test puts them.
type testMemory struct {
	*Memory
	at      time.Time
	reached string
}

func newTestMemory() *testMemory {
	m := &testMemory{at: time.Unix(1000, 0)}
	m.Memory = NewMemory(func() time.Time { return m.at }, func(client.Object) string { return m.reached })
	return m
}

func testPod(uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: version}}
}

func TestMemoryShowsTheNewer(t *testing.T) {
	cases := map[string]struct {
		reason  string
		written *corev1.Pod
		cached  *corev1.Pod
		reached string
		later   time.Duration
		// want is the resourceVersion shown; empty for nothing.
		want string
	}{
		"cache has not seen the create":     {written: testPod("a", "12"), reached: "11", want: "12", reason: "else it would be created twice"},
		"cache has not seen the update":     {written: testPod("a", "12"), cached: testPod("a", "9"), want: "12", reason: "9 is older than 12, though not as text"},
		"cache has seen it":                 {written: testPod("a", "12"), cached: testPod("a", "12"), want: "12", reason: "the same"},
		"cache is ahead":                    {written: testPod("a", "12"), cached: testPod("a", "13"), want: "13", reason: "others write too"},
		"another object since":              {written: testPod("a", "12"), cached: testPod("b", "20"), want: "20", reason: "same name, new UID"},
		"deleted by others since":           {written: testPod("a", "12"), reached: "12", want: "", reason: "the cache has come past the create and shows nothing"},
		"cache cannot say how far it is":    {written: testPod("a", "12"), want: "12", reason: "trust the write for a while"},
		"cache could not say it for long":   {written: testPod("a", "12"), later: time.Minute, want: "", reason: "but not for ever"},
		"nothing written":                   {cached: testPod("a", "9"), want: "9", reason: "the cache is all there is"},
		"nothing written and nothing there": {want: "", reason: "nothing at all"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newTestMemory()
			m.reached = tc.reached
			if tc.written != nil {
				m.Wrote(testClaim, tc.written)
			}
			m.at = m.at.Add(tc.later)
			var cached client.Object
			var list []client.Object
			if tc.cached != nil {
				cached, list = tc.cached, []client.Object{tc.cached}
			}
			got := ""
			if o := m.latest(testClaim, testPod("", ""), cached); o != nil {
				got = o.GetResourceVersion()
			}
			if got != tc.want {
				t.Errorf("%s: shown %q, want %q", tc.reason, got, tc.want)
			}

			m.Forget(testClaim)
			if tc.written != nil {
				m.at = m.at.Add(-tc.later)
				m.Wrote(testClaim, tc.written)
				m.at = m.at.Add(tc.later)
			}
			got = ""
			for _, o := range m.merge(testClaim, list, func(client.Object) bool { return true }) {
				got += o.GetResourceVersion()
			}
			if got != tc.want {
				t.Errorf("%s: listed %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMemoryMarksWhatWasDeleted(t *testing.T) {
	m := newTestMemory()
	m.Deleted(testClaim, "a")
	stale := testPod("a", "9")
	shown := m.latest(testClaim, stale, stale)
	if shown.GetDeletionTimestamp() == nil {
		t.Error("the cache still shows the object and nothing says that it is being deleted")
	}
	if stale.DeletionTimestamp != nil {
		t.Error("an object of the cache was changed")
	}
	if other := testPod("b", "10"); m.latest(testClaim, other, other).GetDeletionTimestamp() != nil {
		t.Error("a new object of the same name counts as deleted")
	}
	if got := m.latest("another", stale, stale); got.GetDeletionTimestamp() != nil {
		t.Error("what was deleted for one claim counts for another")
	}
}

func TestMemoryOfRefusals(t *testing.T) {
	m := newTestMemory()
	m.Refused(testClaim, populate.Refusal{Reason: "QuotaExceeded"})
	if got := m.refusal(testClaim).Reason; got != "QuotaExceeded" {
		t.Errorf("refusal is %q", got)
	}
	if got := m.RefusedClaims(); len(got) != 1 || got[0] != testClaim {
		t.Errorf("refused claims are %v", got)
	}
	if !m.Retry(testClaim) || m.Retry(testClaim) {
		t.Error("a refusal is forgotten once, and only then")
	}
	if got := m.RefusedClaims(); len(got) != 0 {
		t.Errorf("refused claims are %v, want none", got)
	}
}

func TestMemoryOfWhatWasTold(t *testing.T) {
	full, elsewhere := populate.Refusal{Reason: "QuotaExceeded", Step: "a"}, populate.Refusal{Reason: "QuotaExceeded", Step: "b"}
	cases := map[string]struct {
		reason string
		then   func(*testMemory)
		next   populate.Refusal
		want   bool
	}{
		"Again":     {"it was told", func(*testMemory) {}, full, true},
		"Retried":   {"there was room for somebody, and not for this claim", func(m *testMemory) { m.Retry(testClaim) }, full, true},
		"Elsewhere": {"another thing is refused", func(*testMemory) {}, elsewhere, false},
		"Accepted":  {"what was accepted and is refused again is news", func(m *testMemory) { m.Accepted(testClaim) }, full, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newTestMemory()
			if m.Refused(testClaim, full).Told {
				t.Error("nobody was told yet")
			}
			m.Told(testClaim)
			tc.then(m)
			if got := m.Refused(testClaim, tc.next).Told; got != tc.want {
				t.Errorf("%s: told %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMemoryBacksOffFromStaleness(t *testing.T) {
	m := newTestMemory()
	first, second := m.Stale(testClaim), m.Stale(testClaim)
	if first > 50*time.Millisecond || second <= first {
		t.Errorf("waits are %v and %v, want short and growing", first, second)
	}
	for range 20 {
		if d := m.Stale(testClaim); d > 5*time.Second {
			t.Fatalf("wait is %v", d)
		}
	}
	m.Rested(testClaim)
	if got := m.Stale(testClaim); got != first {
		t.Errorf("wait is %v after a rest, want %v", got, first)
	}
}
