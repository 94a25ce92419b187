// Package explain tells the whole story of one claim: what happened to it,
// where it is now, what it waits for, what comes next and what to do.
//
// Gather reads, Tell judges, and printing is apart: Tell is a function of what
// was read.
package explain

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/cli"
)

// The values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// Options are one call of the verb.
type Options struct {
	cli.IOStreams

	// Output is table or json.
	Output string
	// Connect reaches the cluster.
	Connect cli.Connector
	// Now is the clock.
	Now func() time.Time

	claim types.NamespacedName
	from  client.Client
}

// New returns the command.
func New(streams cli.IOStreams, connect cli.Connector, now func() time.Time) *cobra.Command {
	o := &Options{IOStreams: streams, Connect: connect, Now: now, Output: outputTable}
	cmd := &cobra.Command{
		Use:   "explain pvc/NAME",
		Short: "Tell what happens to a claim, what it waits for and what to do",
		Long: `Tell the whole story of one claim: what happened, where it is now, what it
waits for, what comes next and what to do. Nothing is changed. What you have no
right to read is named and left out.

Exit codes: 0 the claim is settled, on its way, or none of Sluice's business;
1 error; 2 called wrongly; 3 someone must act.`,
		Example: "  kubectl sluice explain pvc/data\n  kubectl sluice explain pvc data -n shop -o json",
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
	cmd.Flags().StringVarP(&o.Output, "output", "o", o.Output, "table or json")
	return cmd
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if o.Output != outputTable && o.Output != outputJSON {
		return cli.Usagef("--output %q: it is table or json", o.Output)
	}
	return nil
}

// Complete reads the arguments and reaches for the cluster.
func (o *Options) Complete(args []string) (err error) {
	o.from, o.claim, err = o.Connect.Claim(args)
	return err
}

// Run tells the story. It returns cli.ErrAct if someone must act.
func (o *Options) Run(ctx context.Context) error {
	now := o.Now()
	facts, err := Gather(ctx, o.from, o.claim, now)
	if err != nil {
		return err
	}
	s := Tell(facts)
	if o.Output == outputJSON {
		err = printJSON(o.Out, s)
	} else {
		err = printTable(o.Out, s, now)
	}
	if err == nil && s.Verdict == MustAct {
		return cli.ErrAct
	}
	return err
}
