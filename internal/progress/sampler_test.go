package progress_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	"github.com/sluice-dev/sluice/internal/progress"
)

// pod is a worker whose container has a state.
func pod(name string, state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name),
			Labels: map[string]string{v1alpha1.LabelRole: v1alpha1.RoleWorker, v1alpha1.LabelClaimUID: "claim-of-" + name},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: v1alpha1.WorkerContainer, State: state}}},
	}
}

func running(since time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
}

// logs are the last lines of logs, by Pod.
type logs struct {
	mu    sync.Mutex
	lines map[string]string
	err   error
	asked chan string
}

// set changes the log of Pod w.
func (l *logs) set(line string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines["w"], l.err = line, err
}

func (l *logs) LastLine(_ context.Context, _, pod string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.asked <- pod }()
	return []byte(l.lines[pod]), l.err
}

// bench runs a Sampler on a clock that stands still until it is told to go on.
type bench struct {
	t      *testing.T
	clock  *testclock.FakeClock
	logs   *logs
	reader client.WithWatch
	*progress.Sampler
	woken  chan types.UID
	counts chan error
}

func newBench(t *testing.T, pods ...client.Object) *bench {
	t.Helper()
	b := &bench{
		t: t, clock: testclock.NewFakeClock(start),
		logs:  &logs{lines: map[string]string{}, asked: make(chan string, 100)},
		woken: make(chan types.UID, 100), counts: make(chan error, 100),
	}
	b.reader = fake.NewClientBuilder().WithObjects(pods...).Build()
	b.Sampler = progress.New(progress.Config{
		Workers: b.reader, Logs: b.logs, Clock: b.clock, Log: logr.Discard(), Count: func(err error) { b.counts <- err },
	})
	b.Listen(func(claim types.UID) { b.woken <- claim })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the sampler ended with %v", err)
		}
	})
	return b
}

// read lets time pass until a log is read, and returns how that went.
func (b *bench) read() (pod string, err error) {
	b.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case pod := <-b.logs.asked:
			return pod, <-b.counts
		case <-tick.C:
			if b.clock.HasWaiters() {
				b.clock.Step(time.Second)
			}
		case <-deadline:
			b.t.Fatal("no log was read")
		}
	}
}

// wokenClaim is the claim that was woken, "" if none was: listeners are told before
// the next read is counted.
func (b *bench) wokenClaim() types.UID {
	b.t.Helper()
	select {
	case claim := <-b.woken:
		return claim
	case <-time.After(10 * time.Second):
		b.t.Fatal("nobody was woken")
	}
	return ""
}

func TestReading(t *testing.T) {
	b := newBench(t, pod("w", running(start.Add(-time.Hour))))
	b.logs.set(`{"sluiceProgress":{"bytes":5,"totalBytes":10,"bytesPerSecond":2}}`+"\n", nil)
	if pod, err := b.read(); pod != "w" || err != nil {
		t.Fatalf("read %q: %v", pod, err)
	}
	if claim := b.wokenClaim(); claim != "claim-of-w" {
		t.Errorf("woke %q", claim)
	}
	got, ok := b.Of("w")
	want := populate.Reading{Worker: "w", Progress: worker.Progress{Bytes: 5, TotalBytes: 10, BytesPerSecond: 2}, At: got.At}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("reading: -want +got\n%s", diff)
	}

	// The same again is no news, until it lasts: then nothing moves.
	var rate int64 = 2
	for range 10 {
		if _, err := b.read(); err != nil {
			t.Fatal(err)
		}
		if again, _ := b.Of("w"); again.Progress.BytesPerSecond != rate {
			rate = again.Progress.BytesPerSecond
			if stood := again.At.Sub(want.At); rate != 0 || stood < progress.Stalled {
				t.Errorf("after %s the rate is %d", stood, rate)
			}
		}
	}
	if b.wokenClaim(); rate != 0 {
		t.Errorf("the rate of a worker that stands still is %d", rate)
	}
	select {
	case <-b.woken:
		t.Error("a claim was woken though nothing moved")
	default:
	}
}

func TestFailedReadsAndGarbageChangeNothing(t *testing.T) {
	b := newBench(t, pod("w", running(start.Add(-time.Hour))))
	b.logs.set(`{"sluiceProgress":{"bytes":5}}`, nil)
	if _, err := b.read(); err != nil {
		t.Fatal(err)
	}
	b.wokenClaim()
	errLost := errors.New("node does not answer")
	for line, wantErr := range map[string]error{
		"": errLost, "not JSON": nil, `{"sluiceProgress":`: nil, `{"sluiceProgress":{"bytes":"many"}}`: nil, "\x00\xff\x1b[31m": nil,
	} {
		b.logs.set(line, wantErr)
		if _, err := b.read(); !errors.Is(err, wantErr) {
			t.Errorf("line %q: counted %v, want %v", line, err, wantErr)
		}
		if got, ok := b.Of("w"); !ok || got.Progress.Bytes != 5 {
			t.Errorf("after line %q: %+v, %t", line, got, ok)
		}
	}
	b.logs.set(`{"sluiceProgress":{"bytes":6}}`, nil)
	if _, err := b.read(); err != nil {
		t.Fatal(err)
	}
	if b.wokenClaim(); len(b.woken) != 0 {
		t.Error("garbage woke a claim")
	}
}

func TestOnlyRunningWorkersAreRead(t *testing.T) {
	going := pod("going", running(start.Add(-time.Hour)))
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: start}, []string{"sluice.dev/test"}
	other := pod("other", running(start.Add(-time.Hour)))
	other.Labels = nil
	b := newBench(t, going, other, pod("waiting", corev1.ContainerState{}),
		pod("ended", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}), pod("w", running(start.Add(-time.Hour))))
	b.logs.set(`{"sluiceProgress":{"bytes":5}}`, nil)
	for range 3 {
		if pod, _ := b.read(); pod != "w" {
			t.Errorf("read the log of %q", pod)
		}
	}
	// What has ended is forgotten.
	if err := b.reader.Delete(t.Context(), pod("w", corev1.ContainerState{})); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(10 * time.Second)
	for {
		if _, ok := b.Of("w"); !ok {
			return
		}
		select {
		case <-b.logs.asked:
		case <-deadline:
			t.Fatal("a worker that ended is remembered")
		case <-time.After(time.Millisecond):
			b.clock.Step(time.Second)
		}
	}
}
