package images

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// systemBusybox is where Debian's package puts it.
const systemBusybox = "/bin/busybox"

// findBusybox returns a statically linked busybox: the given one, the
// machine's, one fetched earlier, or one fetched now.
func (o Options) findBusybox(ctx context.Context) (string, error) {
	if o.Busybox != "" {
		return o.Busybox, requireStatic(o.Busybox)
	}
	fetched := filepath.Join(o.Dir, "busybox", "bin", "busybox")
	for _, path := range []string{systemBusybox, fetched} {
		if requireStatic(path) == nil {
			return path, nil
		}
	}
	if err := fetchBusybox(ctx, filepath.Join(o.Dir, "busybox")); err != nil {
		return "", fmt.Errorf("%w (or install the package busybox-static yourself)", err)
	}
	return fetched, requireStatic(fetched)
}

// fetchBusybox unpacks Debian's package into a folder. The package is not
// installed, since on a machine it would push another busybox aside.
func fetchBusybox(ctx context.Context, dir string) (err error) {
	download, err := os.MkdirTemp("", "sluice-busybox-")
	if err != nil {
		return fmt.Errorf("make download folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(download)) }()
	if err := aptDownload(ctx, download, "busybox-static"); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(download, "*.deb"))
	if err != nil {
		return err
	}
	if len(packages) != 1 {
		return fmt.Errorf("fetch busybox-static: got %d packages, want one", len(packages))
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", packages[0], dir).CombinedOutput(); err != nil {
		return commandError("unpack busybox-static", out, err)
	}
	return nil
}

// aptDownload fetches a Debian package into a folder, after refreshing the
// lists of packages if the machine knows none.
func aptDownload(ctx context.Context, dir, name string) error {
	fetch := func() ([]byte, error) {
		// _apt, the user that apt downloads as, cannot write to our folder.
		cmd := exec.CommandContext(ctx, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if _, err := fetch(); err == nil {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "apt-get", "update", "-q").CombinedOutput(); err != nil {
		return commandError("refresh package lists", out, err)
	}
	if out, err := fetch(); err != nil {
		return commandError("fetch "+name, out, err)
	}
	return nil
}

// requireStatic says why a file cannot run in an image that has no libraries.
func requireStatic(path string) (err error) {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read program %q: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("program %q is not statically linked", path)
		}
	}
	return nil
}

// listApplets asks busybox what it can be called as.
func listApplets(ctx context.Context, binary string) ([]string, error) {
	out, err := exec.CommandContext(ctx, binary, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %q: %w", binary, err)
	}
	var applets []string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if a := lines.Text(); a != "" && a != "busybox" && !strings.Contains(a, "/") {
			applets = append(applets, a)
		}
	}
	slices.Sort(applets)
	return slices.Compact(applets), nil
}
