// Package report tells the progress of a copy as lines of JSON.
package report

import (
	"io"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// Interval is how often a Lines reporter writes at most.
const Interval = time.Second

// Lines writes reports as lines, not more often than Interval, whatever comes.
type Lines struct {
	now func() time.Time
	out io.Writer

	mu   sync.Mutex
	last time.Time
	seen worker.Progress
	// told is how many bytes the last line spoke of.
	told int64
}

var _ mover.Progress = (*Lines)(nil)

// NewLines returns a reporter that writes to out and reads the time from now.
func NewLines(out io.Writer, now func() time.Time) *Lines {
	return &Lines{out: out, now: now}
}

// Report implements mover.Progress. A report that comes too soon after the one
// before is kept for Flush; one that goes backwards is raised.
func (l *Lines) Report(p worker.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = worker.Progress{
		Bytes:      max(p.Bytes, l.seen.Bytes),
		Files:      max(p.Files, l.seen.Files),
		TotalBytes: max(p.TotalBytes, l.seen.TotalBytes),

		BytesPerSecond: l.seen.BytesPerSecond,
	}
	now := l.now()
	since := now.Sub(l.last)
	if since < Interval {
		return
	}
	// The first line has nothing to compare with.
	if !l.last.IsZero() {
		l.seen.BytesPerSecond = int64(float64(l.seen.Bytes-l.told) / since.Seconds())
	}
	l.last, l.told = now, l.seen.Bytes
	l.write()
}

// Flush writes the newest report now.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write()
}

// write writes the newest report. A report that cannot be written is lost: it
// is worth less than the copy.
func (l *Lines) write() {
	if line, err := l.seen.Line(); err == nil {
		_, _ = l.out.Write(append(line, '\n'))
	}
}
