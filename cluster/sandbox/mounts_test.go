package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSeparateFolders(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"etc", "usr"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	// A link to another file system is one file of this file system.
	if err := os.Symlink("/proc", filepath.Join(root, "var")); err != nil {
		t.Fatal(err)
	}
	got, err := separateFolders(root)
	if err != nil || len(got) > 0 {
		t.Errorf("one file system: got %v, %v, want none", got, err)
	}
}
