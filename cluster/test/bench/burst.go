package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/simulate"
	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
	"github.com/sluice-dev/sluice/internal/observe"
)

// targets of a burst, by how many claims it has.
var burstTargets = map[int]struct{ bound, clean figure.Target }{
	100:  {figure.AtMost(15), figure.AtMost(20)},
	1000: {figure.AtMost(150), figure.Counted()},
}

// writesTarget is how many write requests one population may take, its event
// included. A burst makes no progress that would be written.
const writesTarget = 9

// bursts measures many claims at once, on simulated nodes: what is measured is
// the control plane and its clients.
func (p *population) bursts(ctx context.Context) (err error) {
	c, err := clustertest.Start(ctx, clustertest.Config{AuditLog: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b, err := newBed(c, p.Repository)
	if err != nil {
		return err
	}
	if err := b.install(ctx); err != nil {
		return err
	}
	sim, err := simulate.Start(ctx, c.RESTConfig(), simulate.Config{Nodes: 10, PodsPerNode: 1000})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sim.Stop(context.WithoutCancel(ctx))) }()
	if err := b.populate(ctx, map[string]string{simulate.AnnotationRuns: p.Work.String()}); err != nil {
		return err
	}
	for _, n := range p.Claims {
		if err := p.burst(ctx, b, n); err != nil {
			return fmt.Errorf("burst of %d claims: %w", n, err)
		}
	}
	return nil
}

// outcome is how a burst went: how long after its begin.
type outcome struct {
	first, all, clean time.Duration
	cpu               map[string]float64
}

func (p *population) burst(ctx context.Context, b *bed, n int) error {
	floor, err := b.plain(ctx, fmt.Sprintf("plain-%d", n), n)
	if err != nil {
		return err
	}
	p.Report.Note(fmt.Sprintf("cpu-seconds-floor-%d", n), floor.cpu)
	m, err := startManager(ctx, p.program, b.cluster.Kubeconfig, filepath.Join(p.Dir, fmt.Sprintf("manager-%d.log", n)))
	if err != nil {
		return err
	}
	defer m.stop()
	if err := b.accepted(ctx); err != nil {
		return err
	}
	audit, err := since(b.cluster.AuditLog)
	if err != nil {
		return err
	}
	if p.Profile {
		go func() {
			_ = m.profile(ctx, "profile?seconds=10", filepath.Join(p.Dir, fmt.Sprintf("cpu-%d.pprof", n))) // an extra
		}()
	}
	namespace := fmt.Sprintf("filled-%d", n)
	got, w, err := b.filled(ctx, namespace, n)
	if err != nil {
		return err
	}
	defer w.stop()
	if err := b.succeeded(ctx, namespace, n); err != nil {
		return err
	}
	requests, err := audit.of(managerAgent)
	if err != nil {
		return err
	}
	misbound, err := b.misbound(ctx, namespace)
	if err != nil {
		return err
	}
	now, most, err := m.resident()
	if err != nil {
		return err
	}
	p.Report.Note(fmt.Sprintf("cpu-seconds-burst-%d", n), got.cpu)
	p.Report.Note(fmt.Sprintf("requests-burst-%d", n), requests)
	p.Report.Note(fmt.Sprintf("manager-mib-burst-%d", n), map[string]float64{"now": now, "most": most})

	name := func(what string) string { return fmt.Sprintf("burst-%d-%s", n, what) }
	target, known := burstTargets[n]
	if !known {
		target.bound, target.clean = figure.Counted(), figure.Counted()
	}
	toClean := w.toClean()
	p.Report.Add(
		figure.New(name("first-bound"), got.first.Seconds(), "s", figure.AtMost(5)).Above(floor.first.Seconds()),
		figure.New(name("all-bound"), got.all.Seconds(), "s", target.bound).Above(floor.all.Seconds()),
		figure.New(name("all-clean"), got.clean.Seconds(), "s", target.clean).Above(floor.clean.Seconds()),
		figure.New(name("bound-to-clean-median"), quantile(toClean, 0.5).Seconds(), "s", figure.AtMost(2)),
		figure.New(name("bound-to-clean-longest"), quantile(toClean, 1).Seconds(), "s", figure.Counted()),
		figure.New(name("writes-per-claim"), float64(requests.writes())/float64(n), "requests", figure.AtMost(writesTarget)),
		figure.New(name("claim-misbound"), float64(misbound), "events", figure.Counted()),
	)
	return nil
}

// filled makes claims with a source and waits until all are Bound and nothing
// temporary is left.
func (b *bed) filled(ctx context.Context, namespace string, n int) (outcome, *watcher, error) {
	if err := b.space(ctx, namespace); err != nil {
		return outcome{}, nil, err
	}
	w, err := b.watch(ctx, namespace, nil)
	if err != nil {
		return outcome{}, nil, err
	}
	got, err := b.run(ctx, w, namespace, n, true, func() bool { bound, _, _, _ := w.counts(); return bound == n },
		func() bool { _, _, left, _ := w.counts(); return left == 0 })
	if err != nil {
		w.stop()
		return outcome{}, nil, err
	}
	return got, w, nil
}

// plain is the floor: claims without a source, each with a Pod made by hand when
// the claim is Bound. It is done when the Pods have ended, and clean when they
// are deleted.
func (b *bed) plain(ctx context.Context, namespace string, n int) (outcome, error) {
	if err := b.space(ctx, namespace); err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w, err := b.watchPlain(ctx, &observe.Programs{}, namespace)
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	deleted := false
	return b.run(ctx, w, namespace, n, false, func() bool { _, ended, _, _ := w.counts(); return ended == n },
		func() bool {
			if !deleted {
				deleted = true
				go func() {
					if err := b.clients.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
						cancel(err)
					}
				}()
			}
			_, _, _, pods := w.counts()
			return pods == 0
		})
}

// run makes n claims at once and waits until all are done and nothing is left.
func (b *bed) run(ctx context.Context, w *watcher, namespace string, n int, filled bool, done, clean func() bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Second+time.Minute)
	defer cancel()
	cpu, begin := processorTime(), time.Now()
	if err := each(ctx, n, func(ctx context.Context, i int) error {
		return b.kube.Create(ctx, newClaim(namespace, fmt.Sprintf("claim-%04d", i), simulate.ClassImmediate, filled))
	}); err != nil {
		return outcome{}, fmt.Errorf("create claims: %w", err)
	}
	for _, holds := range []func() bool{done, clean} {
		if err := clustertest.Until(ctx, func() (bool, error) { return holds(), nil }); err != nil {
			bound, ended, left, pods := w.counts()
			return outcome{}, fmt.Errorf("of %d claims %d are bound; %d Pods have ended, %d Pods and %d temporaries are left: %w", n, bound, ended, pods, left, err)
		}
	}
	times := w.times(filled)
	return outcome{first: times[0].Sub(begin), all: times[n-1].Sub(begin), clean: time.Since(begin), cpu: spent(cpu)}, nil
}
