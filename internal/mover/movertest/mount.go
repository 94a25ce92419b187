package movertest

import (
	"os"
	"path/filepath"
	"testing"
)

// Mount writes files into directory the way the kubelet mounts an object: in a
// hidden folder, with links to them.
func Mount(t testing.TB, directory string, files map[string]string) {
	t.Helper()
	const hidden = "..2026_11_30"
	if err := os.Mkdir(filepath.Join(directory, hidden), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(hidden, filepath.Join(directory, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, hidden, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
}
