package images

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// certificatesPath is where an image has its certificate authorities, if the
// machine that built it has any.
const certificatesPath = "/etc/ssl/certs/ca-certificates.crt"

// epoch stands for every time in an image, so that the same content has the
// same digest whenever it is built.
var epoch = time.Unix(0, 0).UTC()

// entry is one file, folder or symbolic link of a layer. Everything belongs to
// root.
type entry struct {
	path string
	mode int64
	kind byte
	link string
	// text is the content, unless source names the file that holds it.
	text   string
	source string
}

func dir(path string, mode int64) entry { return entry{path: path, mode: mode, kind: tar.TypeDir} }

func symlink(path, target string) entry {
	return entry{path: path, mode: 0o777, kind: tar.TypeSymlink, link: target}
}

func file(path string, mode int64, text string) entry {
	return entry{path: path, mode: mode, kind: tar.TypeReg, text: text}
}

func fileFrom(path string, mode int64, source string) entry {
	return entry{path: path, mode: mode, kind: tar.TypeReg, source: source}
}

// baseEntries is what a program expects to find in any image: users it can look
// up and a place for temporary files.
func baseEntries() []entry {
	return []entry{
		dir("/etc", 0o755),
		file("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
		file("/etc/group", 0o644, "root:x:0:\nnonroot:x:65532:\n"),
		file("/etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
		dir("/tmp", 0o1777),
	}
}

// certificateEntries is the machine's bundle of certificate authorities, or
// nothing where it has none.
func certificateEntries(bundle string) ([]entry, error) {
	if _, err := os.Stat(bundle); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("find certificate bundle: %w", err)
	}
	return []entry{
		dir("/etc/ssl", 0o755),
		dir("/etc/ssl/certs", 0o755),
		fileFrom(certificatesPath, 0o644, bundle),
	}, nil
}

// open returns the entry's content and its size.
func (e entry) open() (io.ReadCloser, int64, error) {
	if e.source == "" {
		return io.NopCloser(strings.NewReader(e.text)), int64(len(e.text)), nil
	}
	f, err := os.Open(e.source)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// digest identifies the entry with all that ends up in an image.
func (e entry) digest() (string, error) {
	h := sha256.New()
	if _, err := fmt.Fprintf(h, "%q %o %c %q\n", e.path, e.mode, e.kind, e.link); err != nil {
		return "", err
	}
	content, _, err := e.open()
	if err != nil {
		return "", fmt.Errorf("read %q: %w", e.path, err)
	}
	if _, err := io.Copy(h, content); err != nil {
		return "", errors.Join(fmt.Errorf("read %q: %w", e.path, err), content.Close())
	}
	return hex.EncodeToString(h.Sum(nil)), content.Close()
}

// writeTo appends the entry to an archive.
func (e entry) writeTo(w *tar.Writer) (err error) {
	header := &tar.Header{
		Name:     strings.TrimPrefix(e.path, "/"),
		Mode:     e.mode,
		Typeflag: e.kind,
		Linkname: e.link,
		ModTime:  epoch,
		Format:   tar.FormatPAX,
	}
	if e.kind != tar.TypeReg {
		return w.WriteHeader(header)
	}
	content, size, err := e.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	header.Size = size
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// newLayer makes a layer of the entries. Its content is read again each time it
// is asked for, so memory does not grow with it.
func newLayer(entries []entry) (v1.Layer, error) {
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeArchive(w, entries)) }()
		return r, nil
	}
	return tarball.LayerFromOpener(open,
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
}

func writeArchive(w io.Writer, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.writeTo(archive); err != nil {
			return fmt.Errorf("add %q: %w", e.path, err)
		}
	}
	return archive.Close()
}
