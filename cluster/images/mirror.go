package images

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// WriteMirrorConfig writes containerd's registry configuration (config_path)
// into dir, so that every pull is tried at the registry with the base URL
// first. References which that registry does not have go on to the registry
// they name.
func WriteMirrorConfig(dir, base string) error {
	u, err := url.Parse(base)
	if err != nil {
		return fmt.Errorf("read mirror URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("read mirror URL %q: want http://host:port", base)
	}
	// _default holds for every registry that has no folder of its own.
	folder := filepath.Join(dir, "_default")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make mirror configuration folder: %w", err)
	}
	text := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", u.Scheme+"://"+u.Host)
	if err := os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write mirror configuration: %w", err)
	}
	return nil
}
