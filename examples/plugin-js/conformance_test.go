// Package pluginjs tries the plugin in this folder, which is JavaScript, with the
// conformance suite.
package pluginjs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/populator/populatortest"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// envRequired says that a machine which cannot run the plugin fails the test.
const envRequired = "SLUICE_REQUIRE_NODE"

func pattern(spec string) []byte {
	return []byte(`{"apiVersion":"patterns.example.com/v1","kind":"Pattern","metadata":{"namespace":"team","name":"stripes",` +
		`"uid":"0b0f8a52-64f2-4a7e-93a5-0d1c5f3a8d11","generation":1},"spec":` + spec + `}`)
}

func TestConformance(t *testing.T) {
	dir, volumes := program(t), t.TempDir()
	target := populatortest.Start(t, populatortest.Program{
		Command: []string{"node", "plugin.mjs", "--socket", "{socket}", "--volumes", volumes, "--state", t.TempDir(), "--proto", abs(t, "../../proto")},
		Dir:     dir,
	})
	target.Source = pattern(`{"fileName":"stripes.txt","line":"black white","lines":2500}`)
	target.Invalid = pattern(`{"fileName":"../stripes.txt","line":"black white","lines":2500}`)
	target.Slow = pattern(`{"fileName":"stripes.txt","line":"-","lines":500000000}`)
	target.Failing = pattern(`{"fileName":"stripes.txt","line":"black white","lines":1000000000}`)
	made := 0
	target.Volume = func() (*populatorv1.Volume, error) {
		made++
		name := fmt.Sprintf("pvc-%d", made)
		err := os.Mkdir(filepath.Join(volumes, name), 0o700)
		return &populatorv1.Volume{Name: name, CsiDriver: "pattern.example.com", CsiHandle: name, CapacityBytes: 1 << 30}, err
	}
	target.Filled = func(v *populatorv1.Volume) error {
		got, err := os.ReadFile(filepath.Join(volumes, v.GetCsiHandle(), "stripes.txt"))
		if err == nil && !bytes.Equal(got, bytes.Repeat([]byte("black white\n"), 2500)) {
			err = fmt.Errorf("the file has %d bytes that are not the pattern", len(got))
		}
		return err
	}
	target.Fingerprint = func(v *populatorv1.Volume) (string, error) {
		info, err := os.Stat(filepath.Join(volumes, v.GetCsiHandle(), "stripes.txt"))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprint(info.Size(), info.ModTime()), nil
	}
	populatortest.Run(t, target)
}

// program returns a folder with the plugin and what npm installed for it.
func program(t *testing.T) string {
	t.Helper()
	modules := ""
	for _, dir := range []string{"node_modules", "../../.build/plugin-js/node_modules"} {
		if _, err := os.Stat(filepath.Join(dir, "@grpc", "grpc-js")); err == nil {
			modules = abs(t, dir)
			break
		}
	}
	_, err := exec.LookPath("node")
	if err != nil || modules == "" {
		if os.Getenv(envRequired) != "" {
			t.Fatalf("Node.js or the plugin's packages are missing (%v)", err)
		}
		// Unit tests install nothing. make conformance, a part of make test, does, and then requires this test to run.
		t.Skip("run it by make conformance, which installs Node.js and the plugin's packages")
	}
	dir := t.TempDir()
	files, err := filepath.Glob("*.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, "package.json") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
