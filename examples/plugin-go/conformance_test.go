package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/populator/populatortest"
)

func hello(spec string) []byte {
	return []byte(`{"apiVersion":"hello.example.com/v1alpha1","kind":"Hello","metadata":{"namespace":"team","name":"example-hello",` +
		`"uid":"3f0c3c53-9a86-4e29-9f53-f9b1b8d6c2a4","generation":1},"spec":` + spec + `}`)
}

func TestConformance(t *testing.T) {
	program := filepath.Join(t.TempDir(), "plugin-go")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build plugin: %v\n%s", err, out)
	}
	target := populatortest.Start(t, populatortest.Program{Command: []string{program, "-socket", "{socket}"}})
	target.Source = hello(`{"fileName":"example.txt","fileContents":"Hello, world!"}`)
	target.Invalid = hello(`{"fileName":"../example.txt","fileContents":"Hello, world!"}`)
	populatortest.Run(t, target)
}
