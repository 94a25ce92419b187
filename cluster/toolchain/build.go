package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/cluster/child"
	"github.com/sluice-dev/sluice/cluster/config"
)

// Build builds the programs into a folder.
type Build struct {
	// Module is the folder of the cluster module.
	Module string
	// Bin is where the programs go.
	Bin string
	// Progress is called before a group of programs is built, but not for those
	// of this repository, which take no time; it may be nil.
	Progress func(what string)
}

// Run builds what is missing or out of date. Programs with the same flags are
// built by one run of the Go tool, so that what they share is compiled once and
// in parallel.
func (b Build) Run(ctx context.Context, programs []Program) error {
	if err := os.MkdirAll(b.stamps(), 0o755); err != nil {
		return fmt.Errorf("make folder for programs: %w", err)
	}
	pins, err := b.pins(ctx)
	if err != nil {
		return err
	}
	for _, group := range groups(programs) {
		var stale []Program
		for _, p := range group {
			if b.stamp(p) != digest(pins, p) {
				stale = append(stale, p)
			}
		}
		if len(stale) == 0 {
			continue
		}
		if others := slices.DeleteFunc(slices.Clone(stale), Program.local); b.Progress != nil && len(others) > 0 {
			b.Progress(names(others))
		}
		if err := b.build(ctx, stale); err != nil {
			return err
		}
		for _, p := range stale {
			if p.local() {
				continue // its sources are in this repository: the Go tool knows best
			}
			if err := b.setStamp(p, pins); err != nil {
				return err
			}
		}
	}
	return nil
}

// local is true for programs of this repository.
func (p Program) local() bool { return strings.HasPrefix(p.Package, "github.com/sluice-dev/sluice/") }

// groups puts programs that are built with the same flags together, in order.
// The Go tool names a binary after its package, so one that is called otherwise
// is on its own.
func groups(programs []Program) [][]Program {
	var out [][]Program
	for _, p := range programs {
		i := slices.IndexFunc(out, func(g []Program) bool {
			return g[0].defaultName() && p.defaultName() &&
				g[0].Cgo == p.Cgo && slices.Equal(g[0].Tags, p.Tags) && slices.Equal(g[0].LinkerFlags, p.LinkerFlags)
		})
		if i < 0 {
			out = append(out, []Program{p})
			continue
		}
		out[i] = append(out[i], p)
	}
	return out
}

// defaultName is true if the Go tool itself would give the binary its name.
func (p Program) defaultName() bool { return path.Base(p.Package) == p.Name }

// build runs the Go tool for one group of programs. It links only what changed.
func (b Build) build(ctx context.Context, programs []Program) error {
	first := programs[0]
	output := b.Bin + string(filepath.Separator)
	if !first.defaultName() {
		output += first.Name
	}
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-o", output,
		"-ldflags", strings.Join(append([]string{"-s", "-w"}, first.LinkerFlags...), " "),
	}
	if len(first.Tags) > 0 {
		args = append(args, "-tags", strings.Join(first.Tags, ","))
	}
	for _, p := range programs {
		args = append(args, p.Package)
	}
	cmd := child.Command(ctx, "go", args...)
	cmd.Dir = b.Module
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+map[bool]string{true: "1", false: "0"}[first.Cgo])
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", names(programs), err, lastLines(out, 20))
	}
	return nil
}

// pins returns what decides about the programs' sources and compiler: the Go
// version and every module with its version and replacement. A comment or a
// changed order in go.mod does not count.
func (b Build) pins(ctx context.Context) ([]byte, error) {
	out, err := b.goTool(ctx, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	type module struct{ Path, Version string }
	var mod struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return nil, fmt.Errorf("decode go.mod: %w", err)
	}
	slices.SortFunc(mod.Require, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	version, err := b.goTool(ctx, "env", "GOVERSION", "GOARCH")
	if err != nil {
		return nil, err
	}
	pins, err := json.Marshal(mod)
	if err != nil {
		return nil, fmt.Errorf("encode pins: %w", err)
	}
	return append(pins, version...), nil
}

func (b Build) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := child.Command(ctx, "go", args...)
	cmd.Dir = b.Module
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("run go %s: %w: %s", args[0], err, lastLines(exit.Stderr, 5))
		}
		return nil, fmt.Errorf("run go %s: %w", args[0], err)
	}
	return out, nil
}

func digest(pins []byte, p Program) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%+v", pins, p))
	return hex.EncodeToString(sum[:])
}

// stamp returns the digest that a program was built for, or nothing if there is
// no such program.
func (b Build) stamp(p Program) string {
	if _, err := os.Stat(filepath.Join(b.Bin, p.Name)); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(b.stamps(), p.Name))
	if err != nil {
		return ""
	}
	return string(data)
}

// setStamp notes that a program is up to date.
func (b Build) setStamp(p Program, pins []byte) error {
	return config.WriteFile(filepath.Join(b.stamps(), p.Name), []byte(digest(pins, p)), 0o644)
}

func (b Build) stamps() string { return filepath.Join(b.Bin, ".stamps") }

func names(programs []Program) string {
	out := make([]string, 0, len(programs))
	for _, p := range programs {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

func lastLines(out []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
