package toolchain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/cluster/config"
)

// Manifest is a file of a pinned module that clusters apply.
type Manifest struct {
	// Module is the module's path; File the file's path within it.
	Module, File string
}

// ManifestDir is the folder, beside the programs, that manifests are copied to.
const ManifestDir = "manifests"

// Manifests returns the definitions that storage side-cars rely on and that
// Kubernetes itself does not have.
func Manifests() []Manifest {
	const snapshotter, gateway = "github.com/kubernetes-csi/external-snapshotter/client/v8", "sigs.k8s.io/gateway-api"
	return []Manifest{
		{snapshotter, "config/crd/snapshot.storage.k8s.io_volumesnapshotclasses.yaml"},
		{snapshotter, "config/crd/snapshot.storage.k8s.io_volumesnapshotcontents.yaml"},
		{snapshotter, "config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml"},
		{gateway, "config/crd/standard/gateway.networking.k8s.io_referencegrants.yaml"},
	}
}

// Copy copies the manifests that are missing or out of date.
func (b Build) Copy(ctx context.Context, manifests []Manifest) error {
	pins, err := b.pins(ctx)
	if err != nil {
		return err
	}
	var missing []Manifest
	for _, m := range manifests {
		if b.stamp(m.program()) != digest(pins, m.program()) {
			missing = append(missing, m)
		}
	}
	for _, m := range missing {
		out, err := b.goTool(ctx, "list", "-m", "-f", "{{.Dir}}", m.Module)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), m.File))
		if err != nil {
			return fmt.Errorf("read manifest of module %q: %w", m.Module, err)
		}
		if err := config.WriteFile(filepath.Join(b.Bin, m.program().Name), data, 0o644); err != nil {
			return err
		}
		if err := b.setStamp(m.program(), pins); err != nil {
			return err
		}
	}
	return nil
}

// program is the manifest as something that can be up to date.
func (m Manifest) program() Program {
	return Program{Name: filepath.Join(ManifestDir, filepath.Base(m.File)), Package: m.Module}
}
