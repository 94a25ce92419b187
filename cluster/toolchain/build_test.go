package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGroups(t *testing.T) {
	programs := []Program{
		{Name: "etcd", Package: "x/server/v3"},
		{Name: "a", Package: "x/cmd/a"},
		{Name: "b", Package: "x/cmd/b", Tags: []string{"slim"}},
		{Name: "c", Package: "x/cmd/c"},
		{Name: "d", Package: "x/cmd/d", Tags: []string{"slim"}},
		{Name: "e", Package: "x/cmd/e", Cgo: true},
	}
	var got []string
	for _, g := range groups(programs) {
		got = append(got, names(g))
	}
	// etcd is alone because the Go tool would call it v3.
	if diff := cmp.Diff([]string{"etcd", "a, c", "b, d", "e"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDigest(t *testing.T) {
	p := Program{Name: "a", Package: "x/a"}
	if digest([]byte("pins"), p) == digest([]byte("other pins"), p) {
		t.Error("other pins, same digest")
	}
	tagged := p
	tagged.Tags = []string{"slim"}
	if digest([]byte("pins"), p) == digest([]byte("pins"), tagged) {
		t.Error("other tags, same digest")
	}
}

func TestProgramsAreTools(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Programs() {
		if !p.local() && !strings.Contains(string(mod), "\t"+p.Package+"\n") {
			t.Errorf("%s is not a tool of go.mod: `go mod tidy` would drop its module", p.Package)
		}
	}
}

// TestRun builds a program of a module made for the test, under a name that the
// Go tool would not choose.
func TestRun(t *testing.T) {
	module, bin := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/hello\n\ngo 1.24\n")
	write("main.go", "package main\n\nvar version = \"none\"\n\nfunc main() { print(version) }\n")

	var built []string
	b := Build{Module: module, Bin: bin, Progress: func(what string) { built = append(built, what) }}
	programs := []Program{{Name: "greeter", Package: "example.com/hello", LinkerFlags: []string{"-X", "main.version=v1"}}}
	run := func() {
		t.Helper()
		if err := b.Run(t.Context(), programs); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, built); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
		built = nil
	}

	run()
	expect("first time", "greeter")
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "greeter")).CombinedOutput()
	if err != nil || string(out) != "v1" {
		t.Errorf("program: got %q, %v, want the version that was stamped", out, err)
	}
	run()
	expect("again")
	write("go.mod", "module example.com/hello\n\n// A comment changes nothing.\ngo 1.24\n")
	run()
	expect("comment in go.mod")
	programs[0].LinkerFlags[1] = "main.version=v2"
	run()
	expect("other flags", "greeter")
	if err := os.Remove(filepath.Join(bin, "greeter")); err != nil {
		t.Fatal(err)
	}
	run()
	expect("program deleted", "greeter")

	write("main.go", "package main\n\nfunc main() { undefined() }\n")
	programs[0].LinkerFlags[1] = "main.version=v3"
	if err := b.Run(t.Context(), programs); err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("program that does not compile: got %v, want the compiler's words", err)
	}
}
