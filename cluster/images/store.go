package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

const (
	// refAnnotation is the OCI annotation for an image's name in a layout. Ours
	// is the full reference.
	refAnnotation = "org.opencontainers.image.ref.name"
	// replacedAnnotation stands in its place on an image that a later one
	// replaced, and is served by digest only.
	replacedAnnotation = "dev.sluice.images.replaced"
	// keyAnnotation holds the recipe's key, by which an image is recognised as
	// unchanged.
	keyAnnotation = "dev.sluice.images.key"
)

// keepReplaced is how many replaced images of a reference are kept: running
// clusters may have Pods that are pinned to them.
const keepReplaced = 4

// store is the image layout. Readers may use it while it is written: blobs
// never change and the index is replaced in one step.
type store struct{ path layout.Path }

func openStore(dir string) (store, error) {
	path, err := layout.FromPath(dir)
	if errors.Is(err, os.ErrNotExist) {
		path, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return store{}, fmt.Errorf("open image layout %q: %w", dir, err)
	}
	return store{path: path}, nil
}

// index reads which images the layout has at this moment.
func (s store) index() (*v1.IndexManifest, error) {
	index, err := s.path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	return manifest, nil
}

// put brings the image of the recipe into the layout under its reference.
func (s store) put(r recipe) (Result, error) {
	result := Result{Name: r.name, Ref: r.ref}
	key, err := r.key()
	if err != nil {
		return result, err
	}
	index, err := s.index()
	if err != nil {
		return result, err
	}
	for _, d := range index.Manifests {
		if d.Annotations[refAnnotation] == r.ref && d.Annotations[keyAnnotation] == key && s.complete(d) == nil {
			result.Digest, result.Unchanged = d.Digest.String(), true
			return result, nil
		}
	}
	img, err := r.assemble()
	if err != nil {
		return result, err
	}
	if err := s.path.WriteImage(img); err != nil {
		return result, fmt.Errorf("write image: %w", err)
	}
	d, err := partial.Descriptor(img)
	if err != nil {
		return result, fmt.Errorf("describe image: %w", err)
	}
	d.Annotations = map[string]string{refAnnotation: r.ref, keyAnnotation: key}
	d.Platform = &v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	index.Manifests = append(replace(index.Manifests, r.ref, d.Digest), *d)
	result.Digest = d.Digest.String()
	return result, s.writeIndex(index)
}

// replace makes room for a new image of a reference: the one before it becomes a
// replaced one, of which the newest are kept.
func replace(manifests []v1.Descriptor, ref string, digest v1.Hash) []v1.Descriptor {
	var kept []v1.Descriptor
	replaced := 0
	for _, d := range slices.Backward(manifests) { // the newest is last
		switch {
		case d.Annotations[refAnnotation] == ref:
			d.Annotations = map[string]string{replacedAnnotation: ref}
		case d.Annotations[replacedAnnotation] != ref:
			kept = append(kept, d)
			continue
		}
		if d.Digest != digest && replaced < keepReplaced {
			kept = append(kept, d)
			replaced++
		}
	}
	slices.Reverse(kept)
	return kept
}

// writeIndex replaces the index so that a reader sees the old one or the new.
func (s store) writeIndex(index *v1.IndexManifest) error {
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encode image index: %w", err)
	}
	const name = "index.json"
	if err := s.path.WriteFile(name+".new", text, 0o644); err != nil {
		return fmt.Errorf("write image index: %w", err)
	}
	dir := string(s.path)
	if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("replace image index: %w", err)
	}
	return nil
}

// manifest reads the manifest of one image.
func (s store) manifest(d v1.Descriptor) (*v1.Manifest, error) {
	img, err := s.path.Image(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", d.Digest, err)
	}
	return img.Manifest()
}

// complete says whether every blob of an image is there in its full size: a
// layout that lost files is repaired by building again.
func (s store) complete(d v1.Descriptor) error {
	manifest, err := s.manifest(d)
	if err != nil {
		return err
	}
	for _, b := range append(manifest.Layers, manifest.Config) {
		info, err := os.Stat(s.blob(b.Digest))
		if err != nil {
			return err
		}
		if info.Size() != b.Size {
			return fmt.Errorf("blob %s has %d bytes, want %d", b.Digest, info.Size(), b.Size)
		}
	}
	return nil
}

// blob returns where the layout keeps a blob.
func (s store) blob(h v1.Hash) string {
	return filepath.Join(string(s.path), "blobs", h.Algorithm, h.Hex)
}

// collect removes the blobs that no image has any more.
func (s store) collect() error {
	index, err := s.index()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, d := range index.Manifests {
		manifest, err := s.manifest(d)
		if err != nil {
			return err
		}
		for _, b := range append(manifest.Layers, manifest.Config, d) {
			used[s.blob(b.Digest)] = true
		}
	}
	return filepath.WalkDir(filepath.Join(string(s.path), "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || used[path] {
			return err
		}
		return os.Remove(path)
	})
}
