package population

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// managerAgent begins the user agent of the manager's requests.
const managerAgent = "sluice-manager/"

// mark is a place in the audit log.
type mark int64

// markNow is the end of the audit log.
func markNow(t *testing.T) mark {
	t.Helper()
	info, err := os.Stat(cluster.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	return mark(info.Size())
}

// writes are the write requests of the manager since a mark, refused ones
// included, as "verb resource/subresource". Its own lease is no part of them.
func writes(t *testing.T, since mark) []string {
	t.Helper()
	var out []string
	for _, e := range requests(t, since) {
		switch e.Verb {
		case "get", "list", "watch":
			continue
		}
		if e.ObjectRef == nil || e.ObjectRef.Resource == "leases" {
			continue
		}
		what := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		out = append(out, e.Verb+" "+what)
	}
	return out
}

// requests are the finished requests of the manager since a mark.
func requests(t *testing.T, since mark) []auditv1.Event {
	t.Helper()
	f, err := os.Open(cluster.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(int64(since), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var out []auditv1.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be half written
		}
		if e.Stage == auditv1.StageResponseComplete && strings.HasPrefix(e.UserAgent, managerAgent) {
			out = append(out, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// quiet waits until the manager has written nothing for a while, and returns
// the mark from which it was quiet.
func quiet(t *testing.T, since mark, lasting time.Duration) {
	t.Helper()
	n, at := len(writes(t, since)), time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Since(at) < lasting {
		<-tick.C
		if now := len(writes(t, since)); now != n {
			n, at = now, time.Now()
		}
	}
}
