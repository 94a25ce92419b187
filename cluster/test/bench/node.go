package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
	"github.com/sluice-dev/sluice/cluster/storage"
	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
	"github.com/sluice-dev/sluice/internal/observe"
)

// node measures one claim at a time, on a real node with the chart installed:
// runs with and without Sluice alternate, so that whatever disturbs the machine
// disturbs both.
func (p *population) node(ctx context.Context) (err error) {
	release, err := helm.BuildSluice(ctx, config.Config{Name: "bench"}, nil)
	if err != nil {
		return err
	}
	c, err := clustertest.Start(ctx, clustertest.Config{Nodes: clustertest.Nodes(1), CSI: true, AuditLog: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b, err := newBed(c, p.Repository)
	if err != nil {
		return err
	}
	release.Kubeconfig = c.Kubeconfig
	if _, err := release.Install(ctx); err != nil {
		return err
	}
	if err := b.define(ctx, "examples/hello/hello-crd.yaml"); err != nil {
		return err
	}
	if err := b.readable(ctx); err != nil {
		return err
	}
	if err := b.populate(ctx, nil); err != nil {
		return err
	}
	if err := b.accepted(ctx); err != nil {
		return err
	}
	const namespace = "single"
	if err := b.space(ctx, namespace); err != nil {
		return err
	}
	var plain, filled, toClean []time.Duration
	programs := &observe.Programs{}
	var audit auditLog
	for i := range p.Runs + 1 {
		if i == 1 { // the first run pulls images and fills caches
			plain, filled, toClean = nil, nil, nil
			if audit, err = since(c.AuditLog); err != nil {
				return err
			}
		}
		took, err := b.onePlain(ctx, programs, newClaim(namespace, fmt.Sprintf("plain-%d", i), storage.ImmediateClass, false))
		if err != nil {
			return fmt.Errorf("plain run %d: %w", i, err)
		}
		plain = append(plain, took)
		took, cleaning, err := b.oneFilled(ctx, newClaim(namespace, fmt.Sprintf("filled-%d", i), storage.ImmediateClass, true))
		if err != nil {
			return fmt.Errorf("filled run %d: %w", i, err)
		}
		filled, toClean = append(filled, took), append(toClean, cleaning)
	}
	requests, err := audit.of(managerAgent)
	if err != nil {
		return err
	}
	misbound, err := b.misbound(ctx, namespace)
	if err != nil {
		return err
	}
	p.Report.Note("requests-node", requests)
	p.Report.Note("node-milliseconds", map[string][]int64{"plain": milliseconds(plain), "filled": milliseconds(filled), "bound-to-clean": milliseconds(toClean)})
	for _, list := range [][]time.Duration{plain, filled, toClean} {
		slices.Sort(list)
	}
	floor, got := quantile(plain, 0.5), quantile(filled, 0.5)
	p.Report.Add(
		figure.New("node-bound-median", ms(got), "ms", figure.TimesFloor(1.15)).Above(ms(floor)),
		figure.New("node-added-median", ms(got-floor), "ms", figure.AtMost(400)),
		figure.New("node-bound-to-clean-median", quantile(toClean, 0.5).Seconds(), "s", figure.AtMost(2)),
		figure.New("node-bound-to-clean-longest", quantile(toClean, 1).Seconds(), "s", figure.AtMost(2)),
		figure.New("node-writes-per-claim", float64(requests.writes())/float64(p.Runs), "requests", figure.AtMost(writesTarget)),
		figure.New("node-claim-misbound", float64(misbound), "events", figure.Counted()),
	)
	return nil
}

// onePlain makes a claim and, as soon as it is Bound, a Pod that does the
// worker's work. It takes until the Pod has ended.
func (b *bed) onePlain(ctx context.Context, programs *observe.Programs, claim *corev1.PersistentVolumeClaim) (took time.Duration, err error) {
	w, err := b.watchPlain(ctx, programs, claim.Namespace)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	begin := time.Now()
	if err := b.kube.Create(ctx, claim); err != nil {
		return 0, fmt.Errorf("create claim: %w", err)
	}
	if err := w.await(ctx, func() bool { return !w.ended[claim.Name].IsZero() }); err != nil {
		return 0, err
	}
	took = w.ended[claim.Name].Sub(begin)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	if err := b.kube.Delete(ctx, pod); err != nil {
		return 0, fmt.Errorf("delete Pod: %w", err)
	}
	return took, b.remove(ctx, claim)
}

// oneFilled makes a claim with a source and says how long it took to be Bound,
// and then to be clean.
func (b *bed) oneFilled(ctx context.Context, claim *corev1.PersistentVolumeClaim) (took, cleaning time.Duration, err error) {
	w, err := b.watch(ctx, claim.Namespace, nil)
	if err != nil {
		return 0, 0, err
	}
	defer w.stop()
	begin := time.Now()
	if err := b.kube.Create(ctx, claim); err != nil {
		return 0, 0, fmt.Errorf("create claim: %w", err)
	}
	if err := w.await(ctx, func() bool { return !w.bound[claim.UID].IsZero() && !w.clean[claim.UID].IsZero() }); err != nil {
		return 0, 0, err
	}
	bound := w.bound[claim.UID]
	took, cleaning = bound.Sub(begin), max(0, w.clean[claim.UID].Sub(bound))
	if err := b.succeeded(ctx, claim.Namespace, 1); err != nil {
		return 0, 0, err
	}
	return took, cleaning, b.remove(ctx, claim)
}

// remove deletes a claim and waits until it and its volume are gone, so that
// the next run is not disturbed.
func (b *bed) remove(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if err := b.kube.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return fmt.Errorf("get claim %q: %w", claim.Name, err)
	}
	if err := b.kube.Delete(ctx, claim); err != nil {
		return fmt.Errorf("delete claim %q: %w", claim.Name, err)
	}
	volume := &corev1.PersistentVolume{}
	if err := clustertest.Until(ctx, func() (bool, error) {
		err := b.kube.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}); err != nil {
		return fmt.Errorf("wait until volume %q is gone: %w", claim.Spec.VolumeName, err)
	}
	return nil
}

// await waits until something is taken down. holds is called with the lock held.
func (w *watcher) await(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return clustertest.Until(ctx, func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return holds(), nil
	})
}
