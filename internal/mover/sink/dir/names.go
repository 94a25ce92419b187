package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
)

// localName returns the entry's path in its shortest form, or refuses it. The
// root would refuse to follow it as well; this tells the user so in a sentence
// and before anything is made.
func localName(e mover.Entry) (string, error) {
	switch {
	case e.Path == "":
		return "", refuse(e, "is empty")
	case len(e.Path) > maxPath:
		return "", refuse(e, fmt.Sprintf("is longer than %d bytes", maxPath))
	case strings.ContainsRune(e.Path, 0):
		return "", refuse(e, "holds a NUL")
	case path.IsAbs(e.Path):
		return "", refuse(e, "is absolute")
	case !within(strings.TrimSuffix(e.Path, "/")):
		return "", refuse(e, "leads out of the volume")
	}
	// A trailing slash is how archives write directories; a file has none.
	if e.Kind == mover.File && strings.HasSuffix(e.Path, "/") {
		return "", refuse(e, "is a file with the name of a directory")
	}
	return path.Clean(e.Path), nil
}

// within reports whether name stays below the directory it is relative to, by
// its letters and whatever its parts are: "a/../b" is refused as well, because
// a may be a link.
func within(name string) bool {
	return filepath.IsLocal(name) && !slices.Contains(strings.Split(name, "/"), "..")
}

// linksWithin reports whether a link in the directory from stays below the
// root. Its way up comes first and nothing after it goes up again, so that the
// letters tell the truth as long as no part of from is a link itself.
func linksWithin(from, link string) bool {
	down := link
	for down == ".." || strings.HasPrefix(down, "../") {
		if from == "." {
			return false
		}
		from, down = path.Dir(from), strings.TrimPrefix(strings.TrimPrefix(down, ".."), "/")
	}
	return down == "" || within(down)
}

// refuse is the error for an entry that is not written.
func refuse(e mover.Entry, why string) error {
	return mover.Permanent(worker.ReasonUnsupportedFormat, fmt.Errorf("refuse entry %q: it %s", shorten(e.Path), why))
}

// shorten makes a name fit to be told.
func shorten(name string) string {
	if len(name) > 128 {
		return name[:128] + "…"
	}
	return name
}

// collision turns what the operating system says about an entry that cannot
// stand where it wants to into a refusal: the source would do it again.
func collision(e mover.Entry, err error) error {
	if refusedByRoot(err) {
		return refuse(e, "leads out of the volume through a link")
	}
	switch {
	case errors.Is(err, syscall.ENAMETOOLONG):
		return refuse(e, "has a name that is too long for the volume's file system")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EEXIST):
		return refuse(e, "collides with an entry before it")
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EILSEQ):
		return refuse(e, "has a name that the volume's file system does not allow")
	default:
		return err
	}
}

// refusedByRoot reports whether os.Root itself declined an access: its errors
// about paths then carry no error of the operating system's.
func refusedByRoot(err error) bool {
	var inner error
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		inner = pe.Err
	} else if le, ok := errors.AsType[*os.LinkError](err); ok {
		inner = le.Err
	}
	if inner == nil || errors.Is(inner, fs.ErrClosed) {
		return false
	}
	_, system := errors.AsType[syscall.Errno](inner)
	return !system
}
