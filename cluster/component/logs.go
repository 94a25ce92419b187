package component

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	tailLines = 25
	tailBytes = 32 << 10
)

// Logs is a folder with one file per component.
type Logs struct {
	// Dir is the folder; it has to exist.
	Dir string
}

// Create opens the log of a component for appending.
func (l Logs) Create(name string) (*os.File, error) {
	f, err := os.OpenFile(l.path(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %q: %w", name, err)
	}
	return f, nil
}

// Tail returns the last lines of a component's log below a heading that names
// the file, or says why it cannot be read.
func (l Logs) Tail(name string, lines int) string {
	path := l.path(name)
	text, err := readEnd(path, tailBytes)
	if err != nil {
		return fmt.Sprintf("(log of %s cannot be read: %v)", name, err)
	}
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return fmt.Sprintf("--- end of the log of %s ---\n%s\n---", name, strings.Join(all, "\n"))
}

func (l Logs) path(name string) string { return filepath.Join(l.Dir, name+".log") }

// readEnd returns at most the last limit bytes of a file.
func readEnd(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	skip := max(0, info.Size()-limit)
	data, err := io.ReadAll(io.NewSectionReader(f, skip, info.Size()-skip))
	return string(data), err
}
