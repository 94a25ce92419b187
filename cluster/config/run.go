package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Run is what the supervisor inside the namespaces is told: the description
// and what the host decided.
type Run struct {
	Config  Config  `json:"config"`
	Network Network `json:"network"`
	// Detached lets the cluster outlive the process that started it.
	Detached bool `json:"detached,omitempty"`
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
