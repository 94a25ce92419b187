package images

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// recipeFormat is part of every key: it changes when equal recipes give other
// bytes than before, so that images of an older program are made again.
const recipeFormat = "1"

// key identifies the image that assemble would make, without making it.
func (r recipe) key() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s %q %q %q %q %q %q\n", recipeFormat, runtime.GOOS, runtime.GOARCH,
		r.ref, r.user, r.env, r.workingDir, r.entrypoint, r.cmd)
	for i, layer := range r.layers {
		for _, e := range layer {
			digest, err := e.digest()
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%d %s\n", i, digest)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// assemble makes the image: one layer per group of entries, and the
// configuration that says how to run it.
func (r recipe) assemble() (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, entries := range r.layers {
		layer, err := newLayer(entries)
		if err != nil {
			return nil, fmt.Errorf("make layer: %w", err)
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "sluice-images"},
		})
		if err != nil {
			return nil, fmt.Errorf("add layer: %w", err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS = runtime.GOOS
	config.Architecture = runtime.GOARCH
	config.Created = v1.Time{Time: epoch}
	config.Config = v1.Config{
		User:       r.user,
		Env:        r.env,
		WorkingDir: r.workingDir,
		Entrypoint: r.entrypoint,
		Cmd:        r.cmd,
	}
	return mutate.ConfigFile(img, config)
}
