// Package figure says what was measured, against what, and whether that is good
// enough: one line a figure for people and scripts, and the same as JSON.
package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// A Figure is one measured value.
type Figure struct {
	// Name says what was measured, in words joined by dashes.
	Name string `json:"name"`
	// Value is in Unit.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Floor is what Kubernetes alone takes for the same in the same run; nil
	// where there is no such thing.
	Floor *float64 `json:"floor,omitempty"`
	// Ratio is Value by Floor.
	Ratio *float64 `json:"ratio,omitempty"`
	// Target is what is good enough.
	Target Target `json:"target"`
	// OK says that the target is met.
	OK bool `json:"ok"`
	// Over is by how much it is missed, as a share of the target.
	Over float64 `json:"over,omitempty"`
}

// A Target is a bound on a figure, or none.
type Target struct {
	// Text is the target as one word.
	Text  string
	limit float64
	of    func(Figure) (float64, bool)
}

// MarshalText implements encoding.TextMarshaler.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.Text), nil }

// AtMost bounds the value.
func AtMost(limit float64) Target {
	return Target{Text: "<=" + number(limit), limit: limit, of: func(f Figure) (float64, bool) { return f.Value, true }}
}

// TimesFloor bounds the value by a multiple of the floor.
func TimesFloor(limit float64) Target {
	return Target{Text: "<=" + number(limit) + "x-floor", limit: limit, of: func(f Figure) (float64, bool) {
		if f.Ratio == nil {
			return 0, false
		}
		return *f.Ratio, true
	}}
}

// Counted is the target of what is only to be known.
func Counted() Target { return Target{Text: "counted"} }

// New returns the figure of a value.
func New(name string, value float64, unit string, target Target) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Target: target}.judged()
}

// Above returns the figure beside its floor.
func (f Figure) Above(floor float64) Figure {
	f.Floor, f.Ratio = &floor, nil
	if floor > 0 {
		ratio := f.Value / floor
		f.Ratio = &ratio
	}
	return f.judged()
}

func (f Figure) judged() Figure {
	f.OK, f.Over = true, 0
	if f.Target.of == nil {
		return f
	}
	got, known := f.Target.of(f)
	f.OK = known && got <= f.Target.limit
	if known && !f.OK {
		f.Over = math.Round((got/f.Target.limit-1)*1000) / 1000
	}
	return f
}

// String is the figure's line.
func (f Figure) String() string {
	verdict := "ok"
	if !f.OK {
		verdict = "MISSED"
	}
	return fmt.Sprintf("figure %s %s %s floor %s ratio %s target %s %s",
		f.Name, number(f.Value), f.Unit, optional(f.Floor), optional(f.Ratio), f.Target.Text, verdict)
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

// number has three decimals at most, and none that say nothing.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

// A Report prints figures as they come and keeps them.
type Report struct {
	out io.Writer

	mu      sync.Mutex
	figures []Figure
	notes   map[string]any
}

// NewReport returns a Report that prints to out.
func NewReport(out io.Writer) *Report { return &Report{out: out, notes: map[string]any{}} }

// Add prints a figure.
func (r *Report) Add(figures ...Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range figures {
		fmt.Fprintln(r.out, f)
	}
	r.figures = append(r.figures, figures...)
}

// Note keeps something that explains the figures, for the file only.
func (r *Report) Note(name string, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes[name] = value
}

// Missed is how many figures missed their target.
func (r *Report) Missed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, f := range r.figures {
		if !f.OK {
			n++
		}
	}
	return n
}

// Save writes everything to a file as JSON.
func (r *Report) Save(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.MarshalIndent(map[string]any{"figures": r.figures, "notes": r.notes}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder of %q: %w", path, err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
