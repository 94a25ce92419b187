package inline

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// MaxManifest bounds a manifest: a template's file is not larger.
const MaxManifest = 1 << 20

// A Manifest says what a volume gets. It is a text of lines that an expression
// in a Populator's template can write: words with a space between them, paths,
// keys and contents in base64, "-" for the default mode.
//
//	file PATH MODE CONTENT      a file and what is in it
//	tree NAME PATH MODE         the files of the directory NAME, below PATH
//	key NAME KEY PATH MODE      of the directory NAME, this file alone, as PATH
type Manifest struct {
	Files []File
	Trees []Tree
}

// File is a file that the manifest itself holds.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// Tree is what is taken of a directory.
type Tree struct {
	// Name of the directory: see Options.
	Name string
	// Path that its files go below.
	Path string
	// Mode of its files.
	Mode fs.FileMode
	// Keys that are taken; none for all.
	Keys []Key
}

// Key is one file of a directory.
type Key struct {
	Key, Path string
	Mode      fs.FileMode
}

// ParseManifest reads a manifest.
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, MaxManifest+1)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := m.line(strings.Split(lines.Text(), " ")); err != nil {
			return Manifest{}, fmt.Errorf("read manifest, line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

func (m *Manifest) line(words []string) error {
	p := parser{words: words[1:]}
	switch words[0] {
	case "file":
		f := File{Path: p.text(), Mode: p.mode(), Content: p.bytes()}
		m.Files = append(m.Files, f)
	case "tree":
		t := Tree{Name: p.word(), Path: p.text(), Mode: p.mode()}
		m.Trees = append(m.Trees, t)
	case "key":
		name := p.word()
		k := Key{Key: p.text(), Path: p.text(), Mode: p.mode()}
		if t := m.tree(name); t != nil {
			t.Keys = append(t.Keys, k)
		} else if p.err == nil {
			p.err = fmt.Errorf("there is no tree %q before it", name)
		}
	default:
		return fmt.Errorf("it begins with %q, want file, tree or key", words[0])
	}
	if p.err == nil && len(p.words) > 0 {
		p.err = errors.New("it has more words than it should")
	}
	return p.err
}

func (m *Manifest) tree(name string) *Tree {
	for i := range m.Trees {
		if m.Trees[i].Name == name {
			return &m.Trees[i]
		}
	}
	return nil
}

// parser takes words off a line and keeps the first error.
type parser struct {
	words []string
	err   error
}

func (p *parser) word() string {
	if len(p.words) == 0 {
		if p.err == nil {
			p.err = errors.New("it has fewer words than it should")
		}
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *parser) bytes() []byte {
	out, err := base64.StdEncoding.DecodeString(p.word())
	if err != nil && p.err == nil {
		p.err = errors.New("a word is not base64")
	}
	return out
}

func (p *parser) text() string { return string(p.bytes()) }

func (p *parser) mode() fs.FileMode {
	w := p.word()
	if w == "-" || p.err != nil {
		return 0
	}
	m, err := strconv.ParseUint(w, 8, 32)
	if err != nil || m == 0 || m > uint64(fs.ModePerm) {
		p.err = fmt.Errorf("mode %q is not between 0001 and 0777", w)
	}
	return fs.FileMode(m)
}
