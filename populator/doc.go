// Package populator makes a Sluice plugin a page of Go: a program that knows how
// the data of one kind of source gets into a volume. Sluice watches the claims,
// makes the volumes, binds them, tries again and cleans up; the plugin needs no
// access to Kubernetes.
//
// There are two ways to fill. A plugin of the first computes a worker, the Pod
// that writes into the volume, where the expressions of a Populator do not reach
// far enough:
//
//	err := populator.Serve(ctx, populator.Plugin[Hello]{
//		Name:   "hello.example.com",
//		Kinds:  []populator.Kind{{Group: "hello.example.com", Kind: "Hello"}},
//		Worker: populator.WorkerFunc[Hello](helloWorker),
//	}, populator.Unix("/run/sluice/hello.sock"))
//
// A plugin of the second kind has the storage itself write into the volume. Its
// [Filler] begins such work and tells how far it is. Where the work is a function
// that runs in the plugin, [Background] makes a Filler of it.
//
// The type parameter is the Go type that a source is decoded into from JSON: a
// struct of your own, or unstructured.Unstructured, or map[string]any.
//
// What the contract demands is done here: answers that were lost are repeated and
// begin nothing twice, fills are found again after a crash, a call that comes too
// late is refused, progress does not go backwards, a panic fails one call and not
// the program, and a signal ends it in good order. What is left to the plugin are
// interfaces of one or two methods. Package populatortest checks the result.
//
// The contract itself is docs/contract/populator.md.
package populator
