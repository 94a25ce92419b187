package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/mover"
)

// attributes of a directory. They are set last: an entry put into a directory
// changes its time, and may not be allowed by its mode.
type attributes struct {
	mode  fs.FileMode
	owner *mover.Owner
	time  time.Time
}

func (s *Sink) directory(name string, e mover.Entry) error {
	s.tally.Other(name, "directory")
	if name == "." {
		// The target belongs to whoever made the volume, unless owners are kept.
		if s.opts.Ownership {
			s.later[name] = s.attributesOf(e)
		}
		return nil
	}
	parent, base, err := s.in(name)
	if err != nil {
		return err
	}
	err = parent.Mkdir(base, directoryMode)
	if errors.Is(err, fs.ErrExist) {
		err = existingDirectory(parent, base, e)
	}
	if err != nil {
		return fmt.Errorf("make directory %q: %w", e.Path, err)
	}
	s.later[name] = s.attributesOf(e)
	return nil
}

// existingDirectory accepts what is there already, if it is a directory or a
// link to one.
func existingDirectory(parent *os.Root, base string, e mover.Entry) error {
	info, err := parent.Stat(base)
	if err != nil {
		return err //nolint:wrapcheck // the caller knows the entry
	}
	if !info.IsDir() {
		return refuse(e, "collides with an entry before it")
	}
	return nil
}

func (s *Sink) attributesOf(e mover.Entry) attributes {
	return attributes{mode: s.mode(e, directoryMode), owner: e.Owner, time: e.ModTime}
}

// finishDirectories sets what directories shall become, the innermost first,
// and the target's own owner and mode to what they were.
func (s *Sink) finishDirectories() error {
	s.forgetParent()
	names := make([]string, 0, len(s.later))
	for name := range s.later {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Reverse(names)
	for _, name := range names {
		if err := s.finishDirectory(name, s.later[name]); err != nil {
			return err
		}
	}
	if _, ok := s.later["."]; ok {
		return nil
	}
	now, err := s.root.Stat(".")
	if err != nil {
		return fmt.Errorf("look at target directory: %w", err)
	}
	if now.Mode() != s.before.Mode() {
		if err := s.root.Chmod(".", s.before.Mode()); err != nil {
			return fmt.Errorf("restore mode of target directory: %w", err)
		}
	}
	return nil
}

func (s *Sink) finishDirectory(name string, a attributes) error {
	info, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // replaced by a later entry above it
	}
	if err != nil {
		return fmt.Errorf("look at directory %q: %w", name, err)
	}
	if !info.IsDir() {
		return nil // a link to a directory, which has its own attributes
	}
	if s.opts.Ownership && a.owner != nil {
		if err := s.root.Lchown(name, a.owner.UID, a.owner.GID); err != nil {
			return fmt.Errorf("set owner of directory %q: %w", name, err)
		}
	}
	if err := s.root.Chmod(name, a.mode); err != nil {
		return fmt.Errorf("set mode of directory %q: %w", name, err)
	}
	if a.time.IsZero() {
		return nil
	}
	if err := s.root.Chtimes(name, a.time, a.time); err != nil {
		return fmt.Errorf("set time of directory %q: %w", name, err)
	}
	return nil
}

func (s *Sink) symlink(name string, e mover.Entry) error {
	if name == "." {
		return refuse(e, "names the target itself")
	}
	if e.Link == "" || strings.ContainsRune(e.Link, 0) || len(e.Link) > maxPath {
		return refuse(e, "is a link to nowhere")
	}
	// A link out of the volume would make its readers, with their rights, open
	// what is theirs and not the source's.
	if path.IsAbs(e.Link) || !linksWithin(path.Dir(name), e.Link) {
		return refuse(e, fmt.Sprintf("is a link to %q, which is outside of the volume", shorten(e.Link)))
	}
	parent, base, err := s.in(name)
	if err != nil {
		return err
	}
	if err := s.noLinkAbove(name, e); err != nil {
		return err
	}
	if err := s.clear(parent, base); err != nil {
		return fmt.Errorf("replace %q: %w", e.Path, err)
	}
	if err := parent.Symlink(e.Link, base); err != nil {
		return fmt.Errorf("make link %q: %w", e.Path, err)
	}
	if s.opts.Ownership && e.Owner != nil {
		if err := parent.Lchown(base, e.Owner.UID, e.Owner.GID); err != nil {
			return fmt.Errorf("set owner of link %q: %w", e.Path, err)
		}
	}
	s.forgetParent() // what was replaced may be a link that led to it
	s.tally.Other(name, "link "+e.Link)
	return nil
}

// hardLink gives a file that was put before another name.
func (s *Sink) hardLink(name string, e mover.Entry) error {
	old, err := localName(mover.Entry{Path: e.Link})
	if err != nil || old == "." || name == "." {
		return refuse(e, fmt.Sprintf("is a hard link to %q, which is outside of the volume", shorten(e.Link)))
	}
	info, err := s.root.Lstat(old)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return refuse(e, fmt.Sprintf("is a hard link to %q, which is no file that came before it", shorten(e.Link)))
	}
	if err != nil {
		return fmt.Errorf("look at %q: %w", old, err)
	}
	parent, base, err := s.in(name)
	if err != nil {
		return err
	}
	if there, err := parent.Lstat(base); err == nil && os.SameFile(there, info) {
		return nil
	}
	if err := s.clear(parent, base); err != nil {
		return fmt.Errorf("replace %q: %w", e.Path, err)
	}
	if err := s.root.Link(old, name); err != nil {
		return fmt.Errorf("link %q to %q: %w", e.Path, old, err)
	}
	s.forgetParent() // what was replaced may be a link that led to it
	s.tally.Other(name, "hard link "+old)
	return nil
}

// clear removes what has the name base, unless it is a directory with
// something in it.
func (s *Sink) clear(parent *os.Root, base string) error {
	err := parent.Remove(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A directory may be gone that was known to be one.
	s.plain = "."
	if err != nil {
		return err //nolint:wrapcheck // the caller knows the entry
	}
	return nil
}

// noLinkAbove refuses a link that lies behind another one: where it leads to
// could not be told from its letters.
func (s *Sink) noLinkAbove(name string, e mover.Entry) error {
	for dir := path.Dir(name); dir != "." && dir != s.plain; dir = path.Dir(dir) {
		info, err := s.root.Lstat(dir)
		if err != nil {
			return fmt.Errorf("look at directory %q: %w", dir, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return refuse(e, fmt.Sprintf("is a link behind the link %q", dir))
		}
	}
	s.plain = path.Dir(name)
	return nil
}
