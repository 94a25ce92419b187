package lintrules

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is the repository, seen from this package.
const top = "../.."

const product = "github.com/sluice-dev/sluice"

// finding is what golangci-lint reports.
type finding struct {
	FromLinter string
	Text       string
	Pos        struct{ Filename string }
}

func TestRules(t *testing.T) {
	root := t.TempDir()
	writeStubs(t, root)
	repo := filepath.Join(root, "sluice")
	for _, s := range samples {
		writeSample(t, repo, s)
	}
	config, err := os.ReadFile(filepath.Join(top, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(repo, ".golangci.yml"), string(config))

	found := map[string][]finding{}
	for _, f := range lint(t, repo) {
		found[filepath.ToSlash(f.Pos.Filename)] = append(found[filepath.ToSlash(f.Pos.Filename)], f)
	}
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			check(t, s, found[s.path])
			delete(found, s.path)
		})
	}
	for file, fs := range found {
		t.Errorf("%s has findings that no sample is about: %v", file, fs)
	}
}

// check compares what was found in a file with what the sample wants.
func check(t *testing.T, s sample, findings []finding) {
	t.Helper()
	// Samples import what they do not use, which is against the rules as well.
	findings = slices.DeleteFunc(findings, func(f finding) bool { return strings.Contains(f.Text, "blank import") })
	if s.want == "" {
		if len(findings) > 0 {
			t.Errorf("%s: reported %v, want nothing", s.path, findings)
		}
		return
	}
	message := regexp.MustCompile(s.message)
	if !slices.ContainsFunc(findings, func(f finding) bool { return f.FromLinter == s.want && message.MatchString(f.Text) }) {
		t.Errorf("%s: reported %v, want %s to say %q", s.path, findings, s.want, s.message)
	}
}

// lint runs golangci-lint over a folder and returns what it found.
func lint(t *testing.T, dir string) []finding {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(top, ".build", "tools", "golangci-lint"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "run", "--output.json.path=stdout", "--show-stats=false", "./...")
	cmd.Dir = dir
	// A cache of its own: the one of the repository would keep what is gone in a moment.
	cmd.Env = append(os.Environ(), "GOLANGCI_LINT_CACHE="+t.TempDir(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// It ends with 1 if it found something.
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("run golangci-lint: %v\n%s%s", err, out, stderr.String())
	}
	var report struct{ Issues []finding }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("read golangci-lint's report: %v\n%s", err, out)
	}
	for _, f := range report.Issues {
		if f.FromLinter == "typecheck" {
			t.Fatalf("a sample does not compile: %s: %s", f.Pos.Filename, f.Text)
		}
	}
	return report.Issues
}

// writeSample writes a file and, if it is the first of its package, the
// package's documentation.
func writeSample(t *testing.T, repo string, s sample) {
	t.Helper()
	name := path.Base(path.Dir(s.path))
	doc := "// Package " + name + " is a sample.\n"
	if strings.HasPrefix(s.path, "cmd/") {
		doc, name = "// Command "+name+" is a sample.\n", "main"
	}
	dir := filepath.Join(repo, filepath.FromSlash(path.Dir(s.path)))
	if _, err := os.Stat(filepath.Join(dir, "doc.go")); err != nil {
		write(t, filepath.Join(dir, "doc.go"), doc+"package "+name+"\n")
	}
	text := "package " + name + "\n"
	if path.Base(s.path) == "doc.go" {
		text = doc + text
	}
	for _, group := range groups(s.imports) {
		text += "\nimport (\n"
		for _, i := range group {
			alias := aliases[i]
			if used := cmp.Or(alias, importName(i)) + "."; !strings.Contains(s.body, used) {
				alias = "_"
			}
			text += "\t" + strings.TrimSpace(alias+" \""+i+"\"") + "\n"
		}
		text += ")\n"
	}
	text = strings.ReplaceAll(text, ")\n\nimport (\n", "\n")
	if s.body != "" {
		text += "\n" + strings.TrimRight(s.body, "\n") + "\n"
	}
	write(t, filepath.Join(dir, path.Base(s.path)), text)
}

// groups puts the standard library's imports before the others.
func groups(imports []string) [][]string {
	var std, others []string
	for _, i := range imports {
		if first, _, _ := strings.Cut(i, "/"); strings.Contains(first, ".") {
			others = append(others, i)
		} else {
			std = append(std, i)
		}
	}
	return slices.DeleteFunc([][]string{std, others}, func(g []string) bool { return len(g) == 0 })
}

// importName is the package name that an import path promises.
func importName(importPath string) string {
	name := path.Base(importPath)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(name) && !strings.HasPrefix(importPath, "k8s.io/api") {
		name = path.Base(path.Dir(importPath))
	}
	return name
}

// writeStubs writes the modules that the samples import, and a go.mod that
// finds them.
func writeStubs(t *testing.T, root string) {
	t.Helper()
	mod := "module " + product + "\n\ngo 1.26.0\n"
	for module, packages := range stubs {
		dir := strings.NewReplacer("/", "_", ".", "_").Replace(module)
		mod += "\nrequire " + module + " " + version(module) + "\n\nreplace " + module + " => ../" + dir + "\n"
		write(t, filepath.Join(root, dir, "go.mod"), "module "+module+"\n\ngo 1.26.0\n")
		for pkg, body := range packages {
			text := "package " + importName(path.Join(module, pkg)) + "\n"
			if strings.Contains(body, "time.") {
				text += "\nimport \"time\"\n"
			}
			write(t, filepath.Join(root, dir, pkg, "stub.go"), text+"\n"+body+"\n")
		}
	}
	write(t, filepath.Join(root, "sluice", "go.mod"), mod)
}

// version is a version that the module path allows.
func version(module string) string {
	if strings.HasSuffix(module, "/v2") {
		return "v2.0.0"
	}
	return "v1.0.0"
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
