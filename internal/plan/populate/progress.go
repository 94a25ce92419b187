package populate

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
)

// progressEvery is how often the progress of one population is written at most.
const progressEvery = 5 * time.Second

// Reading is what a running worker told of its progress. It is untrusted.
type Reading struct {
	// Worker is the UID of the Pod that told it.
	Worker types.UID
	// Progress is what it told.
	Progress worker.Progress
	// At is when that was first read: a worker that tells the same again has
	// told nothing new.
	At time.Time
}

// progressTold is the progress to show of the running worker: the last one
// shown, unless there is news and the last one is old enough; else again says
// when the news may be shown. They never go backwards.
func (v *view) progressTold(last *v1alpha1.Progress) (p *v1alpha1.Progress, again time.Duration) {
	r := v.Reading
	if v.worker == nil || r.Worker != v.worker.UID || r.Progress == (worker.Progress{}) {
		return last, 0
	}
	var before v1alpha1.Progress
	if last != nil {
		before = *last
	}
	limit := capacityOf(v.volume(v.status().VolumeName))
	p = &v1alpha1.Progress{
		Bytes:          max(before.Bytes, min(r.Progress.Bytes, limit)),
		TotalBytes:     min(r.Progress.TotalBytes, limit),
		Files:          max(before.Files, min(r.Progress.Files, limit)),
		BytesPerSecond: min(r.Progress.BytesPerSecond, limit),
		UpdatedAt:      before.UpdatedAt,
	}
	if p.TotalBytes > 0 {
		p.TotalBytes = max(p.TotalBytes, p.Bytes)
	}
	describe(p)
	if *p == before {
		return last, 0
	}
	// A clock that was set back must not hold the figures up.
	if since := v.Now.Sub(timeOf(before.UpdatedAt)); before.UpdatedAt != nil && since >= 0 && since < progressEvery {
		return last, progressEvery - since
	}
	at := metav1.NewTime(r.At.Truncate(time.Second))
	p.UpdatedAt = &at
	return p, 0
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// progressDone is the progress of a worker that has ended: its own figures,
// which nobody vouches for, within the bounds of its volume.
func progressDone(last *v1alpha1.Progress, said worker.Result, end *corev1.ContainerStateTerminated, pv *corev1.PersistentVolume) *v1alpha1.Progress {
	var p v1alpha1.Progress
	if last != nil {
		p.Bytes, p.Files = max(last.Bytes, last.TotalBytes), last.Files
	}
	if said.Bytes > 0 || said.Files > 0 {
		p.Bytes, p.Files = said.Bytes, said.Files
	}
	limit := capacityOf(pv)
	p.Bytes, p.Files = min(p.Bytes, limit), min(p.Files, limit)
	p.TotalBytes = p.Bytes
	if end != nil {
		// The kubelet tells whole seconds.
		if took := int64(end.FinishedAt.Sub(end.StartedAt.Time).Seconds()); took > 0 && !end.StartedAt.IsZero() {
			p.BytesPerSecond = p.Bytes / took
		}
	}
	describe(&p)
	if p.Summary == "" {
		p.Summary = "100%"
	}
	return &p
}

// capacityOf is what a volume holds: no worker has written more, or faster than
// that in a second. It bounds nothing where the volume does not say.
func capacityOf(pv *corev1.PersistentVolume) int64 {
	const unlimited = 1 << 60
	if pv == nil {
		return unlimited
	}
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	if n := capacity.Value(); n > 0 {
		return n
	}
	return unlimited
}

// describe writes the figures as tables show them.
func describe(p *v1alpha1.Progress) {
	p.Summary, p.Rate = "", ""
	switch {
	case p.TotalBytes > 0:
		p.Summary = fmt.Sprintf("%s/%s %d%%", amount(p.Bytes), amount(p.TotalBytes), int64(float64(p.Bytes)/float64(p.TotalBytes)*100))
	case p.Bytes > 0:
		p.Summary = amount(p.Bytes)
	case p.Files > 0:
		p.Summary = strconv.FormatInt(p.Files, 10) + " files"
	}
	if p.BytesPerSecond > 0 {
		p.Rate = amount(p.BytesPerSecond) + "/s"
	}
}

// amount is a number of bytes in two or three digits, rounded down, in the units
// of Kubernetes: 512, 1.5Gi, 40Mi.
func amount(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	i, unit := 0, int64(1<<10)
	for n/unit >= 1<<10 {
		i, unit = i+1, unit<<10
	}
	whole, tenth := n/unit, n%unit*10/unit
	if whole < 10 && tenth > 0 {
		return fmt.Sprintf("%d.%d%ci", whole, tenth, units[i])
	}
	return fmt.Sprintf("%d%ci", whole, units[i])
}
