package helm

import (
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/cluster/images"
)

// Sluice returns the release of Sluice's chart as an embedded cluster runs it:
// the chart of the repository and the image that was built from it.
func Sluice(repository, kubeconfig string) Release {
	name, tag, _ := strings.Cut(images.ManagerRef, ":")
	return Release{
		Kubeconfig: kubeconfig,
		Name:       ReleaseName,
		Namespace:  Namespace,
		Chart:      filepath.Join(repository, "charts", "sluice"),
		Values: map[string]any{
			"image": map[string]any{"repository": name, "tag": tag},
		},
	}
}
