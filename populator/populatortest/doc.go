// Package populatortest is the conformance suite of Sluice's plugin contract,
// sluice.populator.v1, for plugins in any language.
//
// It talks to a plugin as Sluice's manager does, over gRPC, and also as a manager
// does that crashed, lost an answer, was slow, or is two for an instant. Each rule
// of the contract is a case with a name; a plugin that breaks the rule fails that
// case. What a case needs and a plugin does not offer, such as a source that takes
// long, makes the case be skipped and say so.
//
// A plugin in Go is served in the test:
//
//	func TestConformance(t *testing.T) {
//		target := populatortest.Serve(t, plugin)
//		target.Source = []byte(`{"apiVersion": "example.com/v1", …}`)
//		populatortest.Run(t, target)
//	}
//
// Any other is a program that listens on a unix socket; see [Start]. Programs are
// killed and started again between two calls, so that it is seen what they forget.
package populatortest
