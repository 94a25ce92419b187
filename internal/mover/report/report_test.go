package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover/report"
)

func TestLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	lines := report.NewLines(&out, func() time.Time { return now })
	lines.Report(worker.Progress{Bytes: 1, TotalBytes: 9})
	lines.Report(worker.Progress{Bytes: 5, TotalBytes: 9}) // too soon
	now = now.Add(report.Interval)
	lines.Report(worker.Progress{Bytes: 3, TotalBytes: 9}) // backwards
	lines.Report(worker.Progress{Bytes: 9, TotalBytes: 9, Files: 1})
	lines.Flush()

	var got []worker.Progress
	for line := range strings.Lines(out.String()) {
		p, ok := worker.ParseProgress([]byte(line))
		if !ok {
			t.Fatalf("line %q is no report", line)
		}
		got = append(got, p)
	}
	want := []worker.Progress{
		{Bytes: 1, TotalBytes: 9}, {Bytes: 5, TotalBytes: 9, BytesPerSecond: 4}, {Bytes: 9, TotalBytes: 9, Files: 1, BytesPerSecond: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
