// Package helm installs charts from this repository the way a user's helm
// would, out of Go: for the demo, the end-to-end tests and clusters to play
// with. No helm program is needed.
package helm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// Sluice's own release.
const (
	// ReleaseName is what the documentation calls the release of Sluice's chart.
	ReleaseName = "sluice"
	// Namespace is what the documentation installs it into.
	Namespace = "sluice-system"
)

// Release is one chart under one name in one namespace of one cluster.
type Release struct {
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Name of the release.
	Name string
	// Namespace that it is installed into, and that Install makes.
	Namespace string
	// Chart is the folder of the chart.
	Chart string
	// Values are merged over the chart's own.
	Values map[string]any
	// APIVersions are kinds of APIs that Template takes for installed, beside
	// Kubernetes' own: example.com/v1.
	APIVersions []string
	// Timeout bounds how long Install, Upgrade and Uninstall wait for what they
	// changed. Default: 3 minutes.
	Timeout time.Duration
	// Log receives Helm's own messages; nil drops them.
	Log slog.Handler
}

// Install installs the chart and returns its notes when everything in it is
// ready.
func (r Release) Install(ctx context.Context) (notes string, err error) {
	cfg, c, err := r.load()
	if err != nil {
		return "", err
	}
	install := action.NewInstall(cfg)
	install.ReleaseName, install.Namespace, install.CreateNamespace = r.Name, r.Namespace, true
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, r.timeout()
	done, err := install.RunWithContext(ctx, c, r.Values)
	if err != nil {
		return "", fmt.Errorf("install chart %q: %w", r.Name, err)
	}
	return r.notes(done)
}

// Upgrade upgrades the release to the chart and the values, and returns its
// notes when everything in it is ready.
func (r Release) Upgrade(ctx context.Context) (notes string, err error) {
	cfg, c, err := r.load()
	if err != nil {
		return "", err
	}
	upgrade := action.NewUpgrade(cfg)
	upgrade.Namespace = r.Namespace
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, r.timeout()
	upgrade.ServerSideApply = "auto"
	done, err := upgrade.RunWithContext(ctx, r.Name, c, r.Values)
	if err != nil {
		return "", fmt.Errorf("upgrade release %q: %w", r.Name, err)
	}
	return r.notes(done)
}

// Ensure installs the release, or upgrades it where it is installed already.
func (r Release) Ensure(ctx context.Context) (notes string, err error) {
	cfg, err := r.configure()
	if err != nil {
		return "", err
	}
	_, err = action.NewHistory(cfg).Run(r.Name)
	switch {
	case errors.Is(err, driver.ErrReleaseNotFound):
		return r.Install(ctx)
	case err != nil:
		return "", fmt.Errorf("look for release %q: %w", r.Name, err)
	}
	return r.Upgrade(ctx)
}

// Uninstall removes the release and returns when all of it but what its chart
// keeps is gone; Pods may take a moment longer to end. The namespace stays.
func (r Release) Uninstall() error {
	cfg, err := r.configure()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(cfg)
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, r.timeout()
	uninstall.DeletionPropagation = "background"
	if _, err := uninstall.Run(r.Name); err != nil {
		return fmt.Errorf("uninstall release %q: %w", r.Name, err)
	}
	return nil
}

// Template renders the chart for a Kubernetes version without a cluster and
// returns its manifests, without those of its hooks.
func (r Release) Template(ctx context.Context, kubernetes string) (string, error) {
	a, err := r.render(ctx, kubernetes)
	if err != nil {
		return "", err
	}
	return a.Manifest(), nil
}

// Hooks renders the chart as Template does and returns the manifest of each of
// its hooks.
func (r Release) Hooks(ctx context.Context, kubernetes string) ([]string, error) {
	a, err := r.render(ctx, kubernetes)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, h := range a.Hooks() {
		hook, err := release.NewHookAccessor(h)
		if err != nil {
			return nil, fmt.Errorf("read rendered hook of chart %q: %w", r.Chart, err)
		}
		out = append(out, hook.Manifest())
	}
	return out, nil
}

func (r Release) render(ctx context.Context, kubernetes string) (release.Accessor, error) {
	c, err := loader.Load(r.Chart)
	if err != nil {
		return nil, fmt.Errorf("load chart %q: %w", r.Chart, err)
	}
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, fmt.Errorf("parse Kubernetes version %q: %w", kubernetes, err)
	}
	install := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(r.log())))
	install.ReleaseName, install.Namespace = r.Name, r.Namespace
	install.DryRunStrategy, install.KubeVersion, install.APIVersions = action.DryRunClient, version, r.APIVersions
	done, err := install.RunWithContext(ctx, c, r.Values)
	if err != nil {
		return nil, fmt.Errorf("render chart %q: %w", r.Chart, err)
	}
	a, err := release.NewAccessor(done)
	if err != nil {
		return nil, fmt.Errorf("read rendered chart %q: %w", r.Chart, err)
	}
	return a, nil
}

// Lint returns what Helm's own checks find wrong with the chart, warnings
// included.
func (r Release) Lint() []error {
	lint := action.NewLint()
	lint.Strict, lint.Namespace = true, r.Namespace
	return lint.Run([]string{r.Chart}, r.Values).Errors
}

func (r Release) load() (*action.Configuration, chart.Charter, error) {
	c, err := loader.Load(r.Chart)
	if err != nil {
		return nil, nil, fmt.Errorf("load chart %q: %w", r.Chart, err)
	}
	cfg, err := r.configure()
	if err != nil {
		return nil, nil, err
	}
	return cfg, c, nil
}

// configure connects to the cluster.
func (r Release) configure() (*action.Configuration, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = &r.Kubeconfig, &r.Namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(r.log()))
	if err := cfg.Init(flags, r.Namespace, "secret"); err != nil {
		return nil, fmt.Errorf("connect release %q: %w", r.Name, err)
	}
	return cfg, nil
}

func (r Release) log() slog.Handler {
	if r.Log == nil {
		return slog.DiscardHandler
	}
	return r.Log
}

func (r Release) timeout() time.Duration {
	if r.Timeout == 0 {
		return 3 * time.Minute
	}
	return r.Timeout
}

func (r Release) notes(done release.Releaser) (string, error) {
	a, err := release.NewAccessor(done)
	if err != nil {
		return "", fmt.Errorf("read release %q: %w", r.Name, err)
	}
	return a.Notes(), nil
}
