package helm

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/images"
)

// Sluice returns the release of Sluice's chart as an embedded cluster runs it:
// the chart of the repository and the manager's image of that digest, so that
// a node which has an older image under the same tag does not use it. Without a
// digest the tag decides.
func Sluice(repository, kubeconfig, digest string) Release {
	name, tag, _ := strings.Cut(images.ManagerRef, ":")
	worker, workerTag, _ := strings.Cut(images.WorkerRef, ":")
	return Release{
		Kubeconfig: kubeconfig,
		Name:       ReleaseName,
		Namespace:  Namespace,
		Chart:      filepath.Join(repository, "charts", "sluice"),
		Values: map[string]any{
			"image": map[string]any{"repository": name, "tag": tag, "digest": digest},
			// Whoever plays with a cluster wants to see something move.
			"progress": map[string]any{"fromLogs": true},
			"sources":  map[string]any{"image": map[string]any{"repository": worker, "tag": workerTag}},
		},
	}
}

// BuildSluice brings the images of a cluster up to date and returns the release
// of Sluice's chart with the manager that was built. report, if not nil, is
// told of each image.
func BuildSluice(ctx context.Context, cfg config.Config, report func(images.Result)) (Release, error) {
	cfg, err := cfg.WithDefaults(nil)
	if err != nil {
		return Release{}, err
	}
	digest := ""
	err = images.Build(ctx, images.Options{Root: cfg.Repository, Dir: cfg.ImagesDir, Report: func(r images.Result) {
		if r.Name == images.Manager {
			digest = r.Digest
		}
		if report != nil {
			report(r)
		}
	}})
	if err != nil {
		return Release{}, err
	}
	return Sluice(cfg.Repository, cfg.Layout().Kubeconfig(), digest), nil
}
