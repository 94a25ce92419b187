package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// containerdNameAnnotation is what containerd names an imported image after.
const containerdNameAnnotation = "io.containerd.image.name"

// Save writes each image that the options name from their layout into an
// archive beside it, <name>.tar. The archives are OCI layouts that docker load
// understands as well.
func Save(ctx context.Context, o Options) error {
	names, err := o.names()
	if err != nil {
		return err
	}
	s, err := openStore(o.Dir)
	if err != nil {
		return err
	}
	index, err := s.index()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, ok := byRef(index, refs[name])
		if !ok {
			return fmt.Errorf("save image %q: it was not built", name)
		}
		if err := s.save(d, filepath.Join(o.Dir, name+".tar")); err != nil {
			return fmt.Errorf("save image %q: %w", name, err)
		}
	}
	return nil
}

func byRef(index *v1.IndexManifest, ref string) (v1.Descriptor, bool) {
	for _, d := range index.Manifests {
		if d.Annotations[refAnnotation] == ref {
			return d, true
		}
	}
	return v1.Descriptor{}, false
}

// save writes one image into an archive, which appears whole or not at all.
func (s store) save(d v1.Descriptor, path string) (err error) {
	manifest, err := s.manifest(d)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".archive-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	w := tar.NewWriter(f)
	if err := s.writeImage(w, d, manifest); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(w.Close(), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (s store) writeImage(w *tar.Writer, d v1.Descriptor, manifest *v1.Manifest) error {
	ref := d.Annotations[refAnnotation]
	d.Annotations = map[string]string{refAnnotation: ref, containerdNameAnnotation: ref}
	name := func(b v1.Descriptor) string { return "blobs/" + b.Digest.Algorithm + "/" + b.Digest.Hex }
	docker := dockerImage{Config: name(manifest.Config), RepoTags: []string{ref}}
	for _, l := range manifest.Layers {
		docker.Layers = append(docker.Layers, name(l))
	}
	documents := []struct {
		name string
		what any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": layoutVersion}},
		{"index.json", v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{d}}},
		{"manifest.json", []dockerImage{docker}},
	}
	for _, doc := range documents {
		text, err := json.Marshal(doc.what)
		if err != nil {
			return fmt.Errorf("encode %s: %w", doc.name, err)
		}
		if err := file(doc.name, 0o644, string(text)).writeTo(w); err != nil {
			return fmt.Errorf("write %s: %w", doc.name, err)
		}
	}
	written := map[v1.Hash]bool{}
	for _, b := range append([]v1.Descriptor{d, manifest.Config}, manifest.Layers...) {
		if written[b.Digest] {
			continue
		}
		written[b.Digest] = true
		if err := fileFrom(name(b), 0o644, s.blob(b.Digest)).writeTo(w); err != nil {
			return fmt.Errorf("write blob %s: %w", b.Digest, err)
		}
	}
	return nil
}

// layoutVersion is the version of the OCI image layout that the archives have.
const layoutVersion = "1.0.0"

// dockerImage is an entry of the manifest.json that docker load reads.
type dockerImage struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}
