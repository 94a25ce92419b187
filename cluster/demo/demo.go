// Package demo runs the volume populator tutorial from start to end on a
// cluster of its own: what a user would type, in the order they would type it,
// with the time of each step. Nothing of it is left on the machine afterwards.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/helm"
	"github.com/sluice-dev/sluice/cluster/images"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
)

// Greeting is what the tutorial's Job prints when all went well.
const Greeting = "Hello, world!\n"

// Options of a demo.
type Options struct {
	// Name of the cluster.
	Name string
	// Keep leaves the cluster running if the demo succeeds.
	Keep bool
	// Prepare makes the machine ready to run clusters.
	Prepare func(ctx context.Context) error
	// Out receives everything that is to be read.
	Out io.Writer
}

// demo is one run.
type demo struct {
	Options
	steps   *steps
	cfg     config.Config
	release helm.Release
	cluster *lifecycle.Run
}

// Run runs the demo. When ctx ends it stops where it is and cleans up; the
// error is then the context's cause.
func Run(ctx context.Context, o Options) (err error) {
	cfg, err := config.Config{Name: o.Name, Nodes: config.DefaultNodes(1), CSI: true}.WithDefaults(nil)
	if err != nil {
		return fmt.Errorf("describe cluster %q: %w", o.Name, err)
	}
	d := &demo{Options: o, steps: newSteps(o.Out, time.Now), cfg: cfg}
	fmt.Fprintf(o.Out, "The volume populator tutorial on Kubernetes %s, on one real node of this machine's own.\n\n", config.Kubernetes)
	defer func() {
		if d.cluster == nil || (o.Keep && err == nil) {
			return
		}
		err = errors.Join(err, d.steps.do("removing the cluster", d.cluster.Stop))
		if err == nil {
			d.farewell()
		}
	}()
	if err := d.boot(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go d.watch(ctx, cancel)
	err = d.steps.do("installing the chart sluice into "+helm.Namespace, func() error {
		_, err := d.release.Install(ctx)
		return err
	})
	if err == nil {
		err = d.tutorial(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.diagnose()
		}
		return cause(ctx, err)
	}
	if o.Keep {
		d.farewell()
	}
	return nil
}

// boot starts the cluster and builds the images side by side: a cluster that
// starts mostly waits.
func (d *demo) boot(ctx context.Context) error {
	if err := d.steps.do("checking the machine", func() error { return d.Prepare(ctx) }); err != nil {
		return cause(ctx, err)
	}
	side, both := errgroup.WithContext(ctx)
	side.Go(func() error {
		return d.steps.do("building the images", func() (err error) {
			d.release, err = helm.BuildSluice(both, d.cfg, func(r images.Result) {
				if !r.Unchanged {
					d.steps.note("image " + r.Ref)
				}
			})
			return err
		})
	})
	side.Go(func() error {
		return d.steps.do("starting the cluster", func() (err error) {
			d.cluster, err = lifecycle.Start(both, d.cfg, lifecycle.Options{Detached: d.Keep, OnStatus: func(s config.Status) {
				if s.Phase == config.PhaseStarting {
					d.steps.note(s.Unit + " is ready")
				}
			}})
			return err
		})
	})
	return cause(ctx, side.Wait())
}

// watch ends the demo when a part of its cluster dies.
func (d *demo) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-d.cluster.Done():
		cancel(d.cluster.Err())
	}
}

// cause is the reason that ctx ended, if it did: what failed because of that
// is of no interest.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	return err
}

// tutorial types what the tutorial says.
func (d *demo) tutorial(ctx context.Context) error {
	fmt.Fprint(d.Out, "\nThe tutorial: instead of a controller program there is a Populator.\n\n")
	begin := time.Now()
	k := kubectl{bin: filepath.Join(d.cfg.BinDir, "kubectl"), kubeconfig: d.cfg.Layout().Kubeconfig(), dir: d.cfg.Repository, out: d.Out}
	for _, args := range [][]string{
		{"apply", "-f", "examples/hello/hello-crd.yaml"},
		{"apply", "-f", "examples/hello/hello-populator.yaml"},
		{"wait", "--for=condition=Accepted", "populator/hello", "--timeout=30s"},
		{"apply", "-f", "examples/hello/example-hello.yaml"},
		{"apply", "-f", "examples/hello/example-pvc.yaml"},
		{"apply", "-f", "examples/hello/example-job.yaml"},
		{"wait", "--for=condition=Complete", "job/example-job", "--timeout=120s"},
		{"get", "pvc,population"},
	} {
		if _, err := k.run(ctx, args...); err != nil {
			return err
		}
	}
	phase, err := k.ask(ctx, "get", "population", "example-pvc", "-o", "jsonpath={.status.phase}")
	if err != nil {
		return err
	}
	if phase != "Succeeded" {
		return fmt.Errorf("the Population of example-pvc is %q, want Succeeded", phase)
	}
	printed, err := k.run(ctx, "logs", "job/example-job")
	if err != nil {
		return err
	}
	if printed != Greeting {
		return fmt.Errorf("the tutorial's job printed %q, want %q", printed, Greeting)
	}
	fmt.Fprintf(d.Out, "\nFrom the first command to the last line: %s.\n\n", seconds(time.Since(begin)))
	return nil
}

// diagnose prints what a reader of a failure asks first. It has a time of its
// own: the demo's may be over.
func (d *demo) diagnose() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	k := kubectl{bin: filepath.Join(d.cfg.BinDir, "kubectl"), kubeconfig: d.cfg.Layout().Kubeconfig(), dir: d.cfg.Repository, out: d.Out}
	for _, args := range [][]string{
		{"get", "pods,pvc,populations", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.metadata.creationTimestamp"},
		{"-n", helm.Namespace, "logs", "-l", "app.kubernetes.io/component=manager", "--tail=20", "--prefix"},
	} {
		_, _ = k.run(ctx, args...) // it says itself what went wrong
	}
}

// farewell says how long it took and what to try next.
func (d *demo) farewell() {
	fmt.Fprintf(d.Out, "\nAll of it took %s. ", seconds(d.steps.since()))
	if d.Keep {
		fmt.Fprintf(d.Out, `The cluster is still there:

  export KUBECONFIG=%s
  make kubectl ARGS="get populations -A -o wide"
  make down
`, d.cfg.Layout().Kubeconfig())
		return
	}
	fmt.Fprint(d.Out, `Nothing of it is left. What to try next:

  make up                                                          a cluster with Sluice that stays
  make kubectl ARGS="apply -f examples/block/stamps.yaml"          a kind for raw devices, and
  make kubectl ARGS="apply -f examples/block/claim.yaml"           a claim that arrives stamped
  make kubectl ARGS="get populations -A -w"                        watch volumes being filled
  make down                                                        and remove it all
`)
}
