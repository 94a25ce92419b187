package apply

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
)

// calls remembers which plugins are called.
type calls []populate.CallPlugin

func (c *calls) Call(call populate.CallPlugin) { *c = append(*c, call) }

func TestNoFillWithoutRecord(t *testing.T) {
	start := populate.CallPlugin{Populator: "hello", Call: populate.CallStart, ID: "prime-uid", ClaimUID: claimUIDValue}
	lost := errors.New("connection lost")
	cases := map[string]struct {
		reason string
		rv     string
		err    error
		want   calls
		stale  bool
	}{
		"Recorded":   {reason: "the record comes first, then the call", rv: "7", want: calls{start}},
		"Stale":      {reason: "another manager may have recorded a fill of its own", rv: "6", stale: true},
		"AnswerLost": {reason: "what was not seen written may not stand", rv: "7", err: lost},
		"Refused": {
			reason: "what was refused does not stand", rv: "7",
			err: apierrors.NewForbidden(schema.GroupResource{Resource: "populations"}, "claim", errors.New("a policy says no")),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, c := applier(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				if tc.err != nil {
					return tc.err
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			}}, population())
			var made calls
			a.caller = &made
			out, err := a.Apply(t.Context(), populate.StartFill{
				Record: populate.WriteStatus{
					Namespace: "ns", Name: "claim", UID: "pop-uid", ResourceVersion: tc.rv,
					Status: v1alpha1.PopulationStatus{Phase: v1alpha1.PhasePopulating, Fill: &v1alpha1.PluginFill{ID: "prime-uid"}},
				},
				Start: start,
			})
			if errors.Is(tc.err, lost) != (err != nil) || out.Stale != tc.stale {
				t.Errorf("%s: outcome is %+v, %v", tc.reason, out, err)
			}
			if diff := cmp.Diff(tc.want, made); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
			got := &v1alpha1.Population{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(population()), got); err != nil {
				t.Fatal(err)
			}
			if recorded := got.Status.Fill != nil; recorded != (len(tc.want) > 0) {
				t.Errorf("%s: the fill is recorded: %t", tc.reason, recorded)
			}
		})
	}
}

func TestCallPluginWritesNothing(t *testing.T) {
	a, _ := applier(t, interceptor.Funcs{})
	var made calls
	a.caller = &made
	call := populate.CallPlugin{Populator: "hello", Call: populate.CallCleanup, ID: "prime-uid"}
	out, err := a.Apply(t.Context(), call)
	if err != nil || !out.done() || len(out.Objects) > 0 {
		t.Errorf("outcome is %+v, %v", out, err)
	}
	if diff := cmp.Diff(calls{call}, made); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
