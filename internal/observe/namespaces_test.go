package observe

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outOf is a Namespaces that keeps out of some, or fails.
type outOf struct {
	names map[string]bool
	err   error
}

func (o outOf) Out(_ context.Context, name string) (bool, error) { return o.names[name], o.err }

func TestNobodyFillsClaimsOfANamespaceThatIsLeftOut(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason     string
		namespaces Namespaces
		served     bool
		err        error
	}{
		"AllAreServed": {"Without a rule all namespaces are served.", nil, true, nil},
		"OtherIsOut":   {"A rule about another changes nothing.", outOf{names: map[string]bool{"other": true}}, true, nil},
		"Out":          {"A claim in a namespace that is left out has no Populator.", outOf{names: map[string]bool{"ns": true}}, false, nil},
		"Fails":        {"A rule that cannot be read is an error.", outOf{err: boom}, false, boom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := world{sources: []*unstructured.Unstructured{sourceObject()}, cache: []client.Object{claimOf(), populatorOf("p", 0, true)}}
			ob, _ := w.observer(t)
			ob.Namespaces = tc.namespaces
			o, _, err := ob.Observe(t.Context(), testKey)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s\nObserve: %v, want %v", tc.reason, err, tc.err)
			}
			if o.Claim == nil {
				t.Errorf("%s\nthe claim was not observed", tc.reason)
			}
			if (o.Populator != nil) != tc.served {
				t.Errorf("%s\nserved: %t, want %t", tc.reason, o.Populator != nil, tc.served)
			}
		})
	}
}
