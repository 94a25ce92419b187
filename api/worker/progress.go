package worker

import (
	"encoding/json"
	"fmt"
)

// Progress is one line of JSON on a worker's standard output.
type Progress struct {
	// Bytes written so far; it never goes backwards.
	Bytes int64 `json:"bytes"`
	// TotalBytes to write; 0 when unknown.
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// Files written so far.
	Files int64 `json:"files,omitempty"`
	// BytesPerSecond lately; 0 when unknown.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// progressLine keeps a progress report apart from any other JSON on a log.
type progressLine struct {
	Progress *Progress `json:"sluiceProgress"`
}

// Line returns the report as one line without its end.
func (p Progress) Line() ([]byte, error) {
	out, err := json.Marshal(progressLine{Progress: &p})
	if err != nil {
		return nil, fmt.Errorf("encode progress: %w", err)
	}
	return out, nil
}

// ParseProgress reads one line of a worker's output. It reports false for a
// line that is no progress report. Negative numbers become 0.
func ParseProgress(line []byte) (Progress, bool) {
	var l progressLine
	if err := json.Unmarshal(line, &l); err != nil || l.Progress == nil {
		return Progress{}, false
	}
	p := *l.Progress
	p.Bytes, p.TotalBytes, p.Files = max(p.Bytes, 0), max(p.TotalBytes, 0), max(p.Files, 0)
	p.BytesPerSecond = max(p.BytesPerSecond, 0)
	return p, true
}
