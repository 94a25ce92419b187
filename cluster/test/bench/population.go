package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
)

// Options of a run.
type Options struct {
	// Repository is the folder of the product.
	Repository string
	// Dir is where the figures, logs and profiles are kept.
	Dir string
	// Claims are the sizes of the bursts; none leaves them out.
	Claims []int
	// Work is how long the worker of a claim of a burst works.
	Work time.Duration
	// Runs is how many claims are filled one by one on a real node; 0 leaves
	// that out.
	Runs int
	// Settled is how many settled claims the manager's memory is measured with;
	// 0 leaves that out.
	Settled int
	// Profile keeps profiles of the manager beside the figures.
	Profile bool
	// Report takes the figures.
	Report *figure.Report
}

// population is a run.
type population struct {
	Options
	program string
}

// Population measures how claims are filled.
func Population(ctx context.Context, o Options) (err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("make folder of results: %w", err)
	}
	p := &population{Options: o}
	if p.program, err = buildManager(ctx, o.Repository, o.Dir); err != nil {
		return err
	}
	defer os.Remove(p.program) //nolint:errcheck // it is built anew by the next run
	parts := []struct {
		name  string
		asked bool
		run   func(context.Context) error
	}{
		{"bursts", len(o.Claims) > 0, p.bursts},
		{"settled", o.Settled > 0, p.settled},
		{"node", o.Runs > 0, p.node},
	}
	for _, part := range parts {
		if !part.asked {
			continue
		}
		begin := time.Now()
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
		o.Report.Note("seconds-"+part.name, int(time.Since(begin).Seconds()))
	}
	return o.Report.Save(filepath.Join(o.Dir, "population.json"))
}

// succeeded waits until the records of n claims say so.
func (b *bed) succeeded(ctx context.Context, namespace string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := 0
	if err := clustertest.Until(ctx, func() (bool, error) {
		var list v1alpha1.PopulationList
		if err := b.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return false, fmt.Errorf("list Populations: %w", err)
		}
		done = 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == v1alpha1.PhaseSucceeded {
				done++
			}
		}
		return done >= n, nil
	}); err != nil {
		return fmt.Errorf("%d of %d Populations have succeeded: %w", done, n, err)
	}
	return nil
}

// readable lets the manager that the chart installed read the source kind.
func (b *bed) readable(ctx context.Context) error {
	if err := b.kube.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-source-hello", Labels: map[string]string{"sluice.dev/aggregate-to-source-reader": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{helloKind.Group}, Resources: []string{"hellos"}, Verbs: []string{"get", "list", "watch"}}},
	}); err != nil {
		return fmt.Errorf("create role: %w", err)
	}
	return nil
}

// quantile of durations in order; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func milliseconds(list []time.Duration) []int64 {
	out := make([]int64, 0, len(list))
	for _, d := range list {
		out = append(out, d.Milliseconds())
	}
	return out
}
