package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// managerAgent begins the user agent of the manager's requests.
const managerAgent = "sluice-manager/"

// requests counts the requests of a client by verb and resource.
type requests map[string]int

// writes is how many of them write, other than leases.
func (r requests) writes() int {
	n := 0
	for what, count := range r {
		verb, resource, _ := strings.Cut(what, " ")
		if verb != "get" && verb != "list" && verb != "watch" && resource != "leases" {
			n += count
		}
	}
	return n
}

// auditLog is the API server's log of requests, from a place on.
type auditLog struct {
	path string
	from int64
}

// since returns the log from its present end on.
func since(path string) (auditLog, error) {
	info, err := os.Stat(path)
	if err != nil {
		return auditLog{}, fmt.Errorf("look at audit log: %w", err)
	}
	return auditLog{path: path, from: info.Size()}, nil
}

// of counts the requests of a client that were answered, refused ones included,
// as "verb resource/subresource".
func (l auditLog) of(agent string) (requests, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was read only
	if _, err := f.Seek(l.from, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	out := requests{}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 1<<16), 1<<22)
	for lines.Scan() {
		var e struct {
			Stage, Verb, UserAgent string
			ObjectRef              *struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be half written
		}
		if e.Stage != "ResponseComplete" || e.ObjectRef == nil || !strings.HasPrefix(e.UserAgent, agent) {
			continue
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		out[what]++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return out, nil
}
