package archive

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// place returns where an entry goes: "." for the root of the volume, "" for
// nowhere. A name that leaves the root is refused before anything is taken off
// it: what an archive of this kind contains is not to be guessed.
func (o *Options) place(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", unsupported(fmt.Sprintf("an entry is called %q", shorten(name)))
	}
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") || !filepath.IsLocal(name) {
		return "", unsupported(fmt.Sprintf("entry %q leads out of the volume", shorten(name)))
	}
	name = path.Clean(name)
	if o.SubPath != "" && o.SubPath != "." {
		var ok bool
		if name, ok = below(path.Clean(o.SubPath), name); !ok {
			return "", nil
		}
	}
	for range o.StripComponents {
		if name == "." {
			return "", nil
		}
		_, rest, more := strings.Cut(name, "/")
		if !more {
			rest = "."
		}
		name = rest
	}
	return name, nil
}

// below returns name without dir, which it is or lies in. "." is an archive's
// own root, which lies nowhere.
func below(dir, name string) (string, bool) {
	if name == dir {
		return ".", true
	}
	return strings.CutPrefix(name, dir+"/")
}

// file returns where a file goes: one that is itself named by SubPath keeps its
// name, one that has no name left is left out.
func (o *Options) file(name string) (string, error) {
	at, err := o.place(name)
	if err != nil || at != "." {
		return at, err
	}
	if o.StripComponents > 0 {
		return "", nil
	}
	return path.Base(path.Clean(name)), nil
}
