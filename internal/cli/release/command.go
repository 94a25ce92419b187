// Package release lets a claim go by hand: it deletes the temporaries of the
// claim and removes Sluice's finalizer, for when no manager is there to do it.
//
// Gather reads, Make decides, and Options.Run carries the plan out.
package release

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/cli"
)

// lookAgain is how often deleted temporaries are looked for.
const lookAgain = 500 * time.Millisecond

// Options are one call of the verb.
type Options struct {
	cli.IOStreams

	// Yes does not ask, DryRun does nothing, Force does it beside a manager
	// that is at work and although temporaries do not vanish.
	Yes, DryRun, Force bool
	// Timeout is how long to wait until deleted temporaries are gone.
	Timeout time.Duration
	// System is the namespace of the manager.
	System string
	// Connect reaches the cluster.
	Connect cli.Connector
	// Now is the clock.
	Now func() time.Time

	claim types.NamespacedName
	to    client.Client
}

// New returns the command.
func New(streams cli.IOStreams, connect cli.Connector, now func() time.Time) *cobra.Command {
	o := &Options{IOStreams: streams, Connect: connect, Now: now, Timeout: time.Minute, System: "sluice-system"}
	cmd := &cobra.Command{
		Use:   "release pvc/NAME",
		Short: "Let a claim go by hand, where no manager does",
		Long: `Let a claim go by hand, where no manager does: delete the claim's temporaries
(workers and primes) and then remove Sluice's finalizer from the claim. The claim
itself, its volume and its data stay. What would be done is listed first, and
done after a yes. Refused while a manager is alive and at work on the claim.

A prime that waits for the plugin that filled its volume waits no more. One whose
claim is gone is released by its own name.

Exit codes: 0 done, or nothing to do; 1 error; 2 called wrongly; 3 not done, as
it was refused or not agreed to.`,
		Example: "  kubectl sluice release pvc/data --dry-run\n  kubectl sluice release pvc/data -n shop --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be done and end")
	f.BoolVar(&o.Force, "force", false, "do it although a manager is at work on the claim, or temporaries do not vanish")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait until temporaries are gone")
	f.StringVar(&o.System, "sluice-namespace", o.System, "namespace that Sluice is installed in")
	return cmd
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if o.Timeout <= 0 {
		return cli.Usagef("--timeout %s: it must be positive", o.Timeout)
	}
	if o.DryRun && o.Yes {
		return cli.Usagef("--dry-run and --yes: it is one or the other")
	}
	return nil
}

// Complete reads the arguments and reaches for the cluster.
func (o *Options) Complete(args []string) (err error) {
	o.to, o.claim, err = o.Connect.Claim(args)
	return err
}

// Run lists the plan and carries it out. It returns cli.ErrAct if it was
// refused or not agreed to.
func (o *Options) Run(ctx context.Context) error {
	facts, err := Gather(ctx, o.to, o.claim, o.System, o.Now())
	if err != nil {
		return err
	}
	p := Make(facts)
	o.list(p)
	switch {
	case p.Empty():
		return nil
	case p.Objection != "" && !o.Force:
		fmt.Fprintf(o.Out, "\nRefused: %s. Leave it to the manager, or repeat with --force.\n", cli.Clean(p.Objection))
		return cli.ErrAct
	case o.DryRun:
		fmt.Fprintln(o.Out, "\nNothing was done (--dry-run).")
		return nil
	case !o.Yes:
		if agreed, err := o.ask(); err != nil {
			return err
		} else if !agreed {
			fmt.Fprintln(o.Out, "Nothing was done.")
			return cli.ErrAct
		}
	}
	return o.execute(ctx, p)
}

// list says what the plan does.
func (o *Options) list(p Plan) {
	if p.Empty() {
		fmt.Fprintf(o.Out, "Claim %s has no temporaries to delete and no finalizer of Sluice.\n", o.claim)
	} else {
		fmt.Fprintf(o.Out, "To release claim %s:\n", o.claim)
		for _, d := range p.Delete {
			fmt.Fprintf(o.Out, "  delete %s\n", describe(d))
		}
		for _, prime := range p.Primes {
			fmt.Fprintf(o.Out, "  remove finalizer %s from %s\n", v1alpha1.FinalizerPlugin, describe(prime))
		}
		if p.Finalizer {
			fmt.Fprintf(o.Out, "  remove finalizer %s from the claim\n", v1alpha1.FinalizerPopulation)
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintf(o.Out, "Note: %s\n", cli.Clean(n))
	}
}

// ask waits for a yes. The end of the input is a no.
func (o *Options) ask() (bool, error) {
	fmt.Fprint(o.Out, "\nGo on? [y/N] ")
	answer, err := bufio.NewReader(o.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("read answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// execute carries the plan out: the finalizer goes once the temporaries are
// seen gone.
func (o *Options) execute(ctx context.Context, p Plan) error {
	for _, d := range p.Delete {
		// The UID keeps an object of the same name that came since.
		err := o.to.Delete(ctx, d, client.Preconditions{UID: ptr.To(d.GetUID())}, client.PropagationPolicy("Background"))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete %s: %w", describe(d), err)
		}
		fmt.Fprintf(o.Out, "deleted %s\n", describe(d))
	}
	for _, prime := range p.Primes {
		if err := o.letGo(ctx, prime, v1alpha1.FinalizerPlugin); err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "removed finalizer %s from %s\n", v1alpha1.FinalizerPlugin, describe(prime))
	}
	left, err := o.wait(ctx, p.Await)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		message := fmt.Sprintf("%s is still there after %s (%d in all)", describe(left[0]), o.Timeout, len(left))
		if p.Finalizer && !o.Force {
			return fmt.Errorf("%s: the finalizer stays; repeat, or remove it with --force", message)
		}
		fmt.Fprintf(o.Err, "warning: %s\n", message)
	}
	if !p.Finalizer {
		return nil
	}
	if err := o.letGo(ctx, p.Claim, v1alpha1.FinalizerPopulation); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "removed finalizer %s\n", v1alpha1.FinalizerPopulation)
	return nil
}

// wait returns those objects that are still there when time is up.
func (o *Options) wait(ctx context.Context, objects []client.Object) ([]client.Object, error) {
	left := objects
	err := wait.PollUntilContextTimeout(ctx, lookAgain, o.Timeout, true, func(context.Context) (bool, error) {
		still := make([]client.Object, 0, len(left))
		for _, d := range left {
			uid := d.GetUID()
			now, ok := d.DeepCopyObject().(client.Object)
			if !ok {
				continue
			}
			err := o.to.Get(ctx, client.ObjectKeyFromObject(d), now)
			switch {
			case apierrors.IsNotFound(err), err == nil && now.GetUID() != uid:
			case err != nil:
				return false, fmt.Errorf("look for %s: %w", describe(d), err)
			default:
				still = append(still, d)
			}
		}
		left = still
		return len(left) == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return left, nil
	}
	return left, err
}

// letGo removes a finalizer of ours from a claim and leaves those of others,
// whatever else is changed on the claim meanwhile.
func (o *Options) letGo(ctx context.Context, claim *corev1.PersistentVolumeClaim, finalizer string) error {
	key := client.ObjectKeyFromObject(claim)
	for {
		c := &corev1.PersistentVolumeClaim{}
		err := o.to.Get(ctx, key, c)
		if apierrors.IsNotFound(err) || err == nil && c.UID != claim.UID {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read claim %q: %w", key, err)
		}
		if !slices.Contains(c.Finalizers, finalizer) {
			return nil
		}
		kept := slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == finalizer })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": c.UID, "resourceVersion": c.ResourceVersion, "finalizers": kept,
		}})
		if err != nil {
			return fmt.Errorf("encode patch of claim %q: %w", key, err)
		}
		err = o.to.Patch(ctx, c, client.RawPatch(types.MergePatchType, patch))
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("remove finalizer from claim %q: %w", key, err)
		}
	}
}
