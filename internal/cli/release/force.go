package release

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/cli"
)

// Force lets one claim go as the verb does with --yes and --force, for a caller
// that has stopped the managers itself. It returns what was done, a line each.
// A temporary that is still there after the timeout holds the claim no longer.
func Force(ctx context.Context, to client.Client, claim types.NamespacedName, system string, now time.Time, timeout time.Duration) ([]string, error) {
	facts, err := Gather(ctx, to, claim, system, now)
	if cli.Absent(err) {
		return nil, nil // it went meanwhile
	}
	if err != nil {
		return nil, err
	}
	p := Make(facts)
	if p.Empty() {
		return nil, nil
	}
	var said bytes.Buffer
	o := Options{IOStreams: cli.IOStreams{Out: &said, Err: &said}, Force: true, Timeout: timeout, to: to, claim: claim}
	err = o.execute(ctx, p)
	if err != nil {
		err = fmt.Errorf("release claim %q: %w", claim, err)
	}
	did := strings.Split(strings.TrimSpace(said.String()), "\n")
	for _, l := range p.Left {
		did = append(did, "left "+describe(l)+", whose volume was there before it")
	}
	return did, err
}
