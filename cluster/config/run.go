package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Run is what the supervisor inside the namespaces is told: the description
// and what the host decided.
type Run struct {
	Config  Config  `json:"config"`
	Network Network `json:"network"`
	// Detached lets the cluster outlive the process that started it.
	Detached bool `json:"detached,omitempty"`
	// Starter is the process that started the cluster.
	Starter Process `json:"starter,omitzero"`
}

// Process names one process of this machine for as long as the machine runs:
// process numbers are used again, but not with the same start.
type Process struct {
	PID int `json:"pid,omitempty"`
	// Start is when it began, in clock ticks since boot (proc_pid_stat(5)).
	Start string `json:"start,omitempty"`
}

// ProcessOf names the process that has a number now.
func ProcessOf(pid int) (Process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The second field is a name in brackets that may hold anything; the start
	// is the twentieth after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("look at process %d: its state has %d fields", pid, len(fields))
	}
	return Process{PID: pid, Start: fields[19]}, nil
}

// Runs says whether the process still runs.
func (p Process) Runs() bool {
	now, err := ProcessOf(p.PID)
	return err == nil && now == p
}

// Phase says how far a run is.
type Phase string

// The phases of a run.
const (
	PhaseStarting Phase = "Starting"
	PhaseReady    Phase = "Ready"
	PhaseFailed   Phase = "Failed"
	PhaseStopped  Phase = "Stopped"
)

// Status is what the supervisor tells: each change is one line of JSON to the
// process that started the cluster, and the last one is kept in Layout.Status.
type Status struct {
	Phase Phase `json:"phase"`
	// Unit became ready Took after its own start and Since after the
	// cluster's; empty in a status that is about the whole cluster.
	Unit  string        `json:"unit,omitempty"`
	Took  time.Duration `json:"took,omitempty"`
	Since time.Duration `json:"since,omitempty"`
	// Reason says why the phase is Failed.
	Reason string `json:"reason,omitempty"`
}

// Load reads JSON from a file.
func Load[T any](path string) (T, error) {
	var v T
	data, err := os.ReadFile(path)
	if err != nil {
		return v, fmt.Errorf("read %q: %w", path, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("decode %q: %w", path, err)
	}
	return v, nil
}

// Save writes JSON to a file in one step, so that a reader never sees half.
func Save(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %q: %w", path, err)
	}
	return WriteFile(path, append(data, '\n'), 0o644)
}

// WriteFile writes a file in one step, and the folders above it.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder of %q: %w", path, err)
	}
	half := path + ".new"
	if err := os.WriteFile(half, data, mode); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := os.Rename(half, path); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}
