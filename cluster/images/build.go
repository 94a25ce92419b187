package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/cluster/child"
)

// Options say what Build makes and where.
type Options struct {
	// Root is the repository's folder: the one with the product's go.mod.
	Root string
	// Dir is the folder of the image layout. It is made if it is missing.
	Dir string
	// Only are the names of the images to make; empty means all of them.
	Only []string
	// Busybox is a statically linked busybox. Empty means the machine's own,
	// or else the one of Debian's package busybox-static, which is fetched into
	// Dir and not installed.
	Busybox string
	// Report, if set, is called once for each image, in order.
	Report func(Result)
}

// Result says what became of one image.
type Result struct {
	// Name is the image's short name, Ref the reference it is served under.
	Name, Ref string
	// Digest is the manifest's digest, usable as Ref's repository@Digest.
	Digest string
	// Unchanged is set where the image of an earlier Build was kept.
	Unchanged bool
}

// Build makes the images of the options in their layout. Images that have not
// changed are left alone; other images in the layout are kept. Several
// processes may build into the same folder, one after the other.
func Build(ctx context.Context, o Options) error {
	names, err := o.names()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("make image folder: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(o.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()

	binaries, err := compile(ctx, o, names)
	if err != nil {
		return err
	}
	s, err := openStore(o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		r, err := o.recipe(ctx, name, binaries)
		if err != nil {
			return fmt.Errorf("build image %q: %w", name, err)
		}
		result, err := s.put(r)
		if err != nil {
			return fmt.Errorf("build image %q: %w", name, err)
		}
		if o.Report != nil {
			o.Report(result)
		}
	}
	return s.collect()
}

// names resolves Only, in the order in which images are made.
func (o Options) names() ([]string, error) {
	all := Names()
	if len(o.Only) == 0 {
		return all, nil
	}
	for _, name := range o.Only {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no image %q: there are %s", name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(o.Only, name) }), nil
}

func (o Options) recipe(ctx context.Context, name string, binaries map[string]string) (recipe, error) {
	switch name {
	case Pause:
		return pauseRecipe(binaries[Pause]), nil
	case Busybox:
		binary, err := o.findBusybox(ctx)
		if err != nil {
			return recipe{}, err
		}
		applets, err := listApplets(ctx, binary)
		if err != nil {
			return recipe{}, err
		}
		return busyboxRecipe(binary, applets), nil
	}
	certificates, err := certificateEntries(certificatesPath)
	if err != nil {
		return recipe{}, err
	}
	return programRecipe(name, binaries[name], slices.Concat(baseEntries(), certificates)), nil
}

// compile builds the commands behind the named images, statically and without
// traces of this machine, and returns where each binary is. One go build per
// module: the Go tool itself skips what is up to date.
func compile(ctx context.Context, o Options, names []string) (map[string]string, error) {
	bin, err := filepath.Abs(filepath.Join(o.Dir, "bin"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, fmt.Errorf("make folder for binaries: %w", err)
	}
	binaries := map[string]string{}
	packages := map[string][]string{}
	for _, name := range names {
		p, ok := programs[name]
		if !ok {
			continue
		}
		binaries[name] = filepath.Join(bin, filepath.Base(p.pkg))
		packages[p.module] = append(packages[p.module], p.pkg)
	}
	for module, pkgs := range packages {
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin + "/"}, pkgs...)
		cmd := child.Command(ctx, "go", args...)
		cmd.Dir = filepath.Join(o.Root, module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, commandError("compile "+strings.Join(pkgs, " "), out, err)
		}
	}
	return binaries, nil
}

// commandError joins what a command said with how it ended.
func commandError(what string, out []byte, err error) error {
	const limit = 4 << 10
	text := strings.TrimSpace(string(out))
	if len(text) > limit {
		text = "… " + text[len(text)-limit:]
	}
	if text == "" || errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w\n%s", what, err, text)
}
