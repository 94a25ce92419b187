// Package fault makes the driver misbehave on request. Faults stand in one file
// of the state directory that every process of the driver reads at every call,
// so they take effect at once, survive restarts, and can be written by hand as
// well as through this package.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sluice-dev/sluice/cluster/csi/state"
)

// FileName is the name of the faults' file in the state directory.
const FileName = "faults.json"

// lockName is the lock that guards the file.
const lockName = "faults"

// Point is when a fault strikes.
type Point string

// The points there are.
const (
	// Before the call has done anything.
	Before Point = "before"
	// After has the call do its work and then lose the answer.
	After Point = "after"
)

// A Fault is one way to misbehave. Empty fields match every call.
type Fault struct {
	// Name identifies the fault. Adding one of a name replaces it.
	Name string `json:"name"`
	// Method is the CSI call, such as CreateVolume.
	Method string `json:"method"`
	// Node is the node that the call is for: where the volume is attached or
	// staged, or, for CreateVolume, the node that the scheduler chose.
	Node string `json:"node,omitempty"`
	// Zone is that node's zone.
	Zone string `json:"zone,omitempty"`
	// Volume is a volume's ID or the name that it was requested by.
	Volume string `json:"volume,omitempty"`
	// Claim is "namespace/name" of the volume's claim, as the provisioner
	// passes it with --extra-create-metadata.
	Claim string `json:"claim,omitempty"`

	// When is Before (default) or After.
	When Point `json:"when,omitempty"`
	// Delay holds the call for so long.
	Delay Duration `json:"delay,omitempty"`
	// Code is the gRPC status the call then fails with, such as
	// ResourceExhausted. Empty: it goes on.
	Code Code `json:"code,omitempty"`
	// Message replaces the error's default message.
	Message string `json:"message,omitempty"`
	// Times is how often the fault strikes before it removes itself. 0: always.
	Times int `json:"times,omitempty"`
}

// A Call is what faults are matched against.
type Call struct {
	Method string
	Node   string
	Zone   string
	// Volumes are the names that the volume goes by.
	Volumes []string
	Claim   string
}

// matches says whether the fault strikes the call at the point.
func (f Fault) matches(c Call, at Point) bool {
	when := f.When
	if when == "" {
		when = Before
	}
	switch {
	case when != at, f.Method != c.Method:
		return false
	case f.Node != "" && f.Node != c.Node:
		return false
	case f.Zone != "" && f.Zone != c.Zone:
		return false
	case f.Volume != "" && !slices.Contains(c.Volumes, f.Volume):
		return false
	}
	return f.Claim == "" || f.Claim == c.Claim
}

func (f Fault) validate() error {
	switch {
	case f.Name == "":
		return errors.New("a fault must have a name")
	case f.Method == "":
		return fmt.Errorf("fault %q names no method", f.Name)
	case f.When != "" && f.When != Before && f.When != After:
		return fmt.Errorf("fault %q strikes at %q: want %q or %q", f.Name, f.When, Before, After)
	case f.Code == 0 && f.Delay == 0:
		return fmt.Errorf("fault %q has neither code nor delay", f.Name)
	case f.Delay < 0 || f.Times < 0:
		return fmt.Errorf("fault %q has a negative delay or times", f.Name)
	}
	return nil
}

// Duration is a time.Duration that reads and writes as "1m30s" in JSON.
type Duration time.Duration

// MarshalText renders the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Code is a gRPC status code that reads and writes as its name in JSON.
type Code codes.Code

// MarshalText renders the code.
func (c Code) MarshalText() ([]byte, error) { return []byte(codes.Code(c).String()), nil }

// UnmarshalText parses the code.
func (c *Code) UnmarshalText(text []byte) error {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if strings.EqualFold(code.String(), string(text)) {
			*c = Code(code)
			return nil
		}
	}
	return fmt.Errorf("gRPC status code %q is unknown", text)
}

// A Set is the faults of one state directory. Every change is made under a lock
// that the driver's processes and tests share.
type Set struct{ store *state.Store }

// In returns the faults of a state directory.
func In(store *state.Store) Set { return Set{store: store} }

// List returns the faults, in the order they were added.
func (s Set) List() ([]Fault, error) {
	data, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	var faults []Fault
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields() // a misspelt condition would strike every call
	if err := decoder.Decode(&faults); err != nil {
		return nil, fmt.Errorf("decode %s: %w", FileName, err)
	}
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return nil, err
		}
	}
	return faults, nil
}

// Add adds faults, replacing those of the same names.
func (s Set) Add(ctx context.Context, faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	return s.update(ctx, func(all []Fault) []Fault {
		for _, f := range faults {
			all = append(without(all, f.Name), f)
		}
		return all
	})
}

// Remove removes the faults of the names. Those missing have struck their last.
func (s Set) Remove(ctx context.Context, names ...string) error {
	return s.update(ctx, func(all []Fault) []Fault { return without(all, names...) })
}

// Clear removes all faults.
func (s Set) Clear(ctx context.Context) error {
	return s.update(ctx, func([]Fault) []Fault { return nil })
}

// Strike returns the first fault that strikes the call at the point, and counts
// it. ok is false when the call is spared.
func (s Set) Strike(ctx context.Context, c Call, at Point) (hit Fault, ok bool, err error) {
	all, err := s.List()
	if err != nil || !slices.ContainsFunc(all, func(f Fault) bool { return f.matches(c, at) }) {
		return Fault{}, false, err
	}
	err = s.update(ctx, func(all []Fault) []Fault {
		i := slices.IndexFunc(all, func(f Fault) bool { return f.matches(c, at) })
		if i < 0 {
			return all // another call took the last strike
		}
		hit, ok = all[i], true
		switch all[i].Times {
		case 0:
		case 1:
			all = slices.Delete(all, i, i+1)
		default:
			all[i].Times--
		}
		return all
	})
	return hit, ok, err
}

func (s Set) path() string { return filepath.Join(s.store.Dir(), FileName) }

func (s Set) update(ctx context.Context, change func([]Fault) []Fault) error {
	unlock, err := s.store.Lock(ctx, lockName)
	if err != nil {
		return fmt.Errorf("change faults: %w", err)
	}
	defer unlock()
	old, err := s.List()
	if err != nil {
		return err
	}
	changed := change(slices.Clone(old))
	if slices.Equal(old, changed) {
		return nil
	}
	if len(changed) == 0 {
		if err := os.Remove(s.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove faults: %w", err)
		}
		return nil
	}
	data, err := json.MarshalIndent(changed, "", "  ")
	if err != nil {
		return fmt.Errorf("encode faults: %w", err)
	}
	if err := state.WriteFile(s.path(), append(data, '\n')); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}

func without(all []Fault, names ...string) []Fault {
	return slices.DeleteFunc(all, func(f Fault) bool { return slices.Contains(names, f.Name) })
}
