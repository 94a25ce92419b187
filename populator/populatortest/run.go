package populatortest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// T is what a case needs of *testing.T.
type T interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one rule of the contract.
type Case struct {
	// Name is made of the part of the contract and the rule.
	Name string
	// Rule is what a plugin has to do, in one sentence.
	Rule string

	// needs is the capability that the rule is about; 0 for every plugin.
	needs populatorv1.Capability
	run   func(t T, s *session)
}

// Cases returns all rules, in the order in which they are tried. Those about a
// capability that a plugin does not have are not tried with it.
func Cases() []Case {
	var all []Case
	for _, part := range []struct {
		needs populatorv1.Capability
		cases []Case
	}{
		{0, infoCases},
		{0, callCases},
		{populatorv1.Capability_CAPABILITY_VALIDATE_SOURCE, validateCases},
		{populatorv1.Capability_CAPABILITY_MUTATE_PRIME, primeCases},
		{populatorv1.Capability_CAPABILITY_COMPUTE_WORKER, workerCases},
		{populatorv1.Capability_CAPABILITY_FILL, fillCases},
		{populatorv1.Capability_CAPABILITY_FILL, cancelCases},
		{populatorv1.Capability_CAPABILITY_FILL, restartCases},
	} {
		for _, c := range part.cases {
			c.needs = part.needs
			all = append(all, c)
		}
	}
	return all
}

// cases returns those rules that are about the plugin.
func (s *session) cases() []Case {
	return slices.DeleteFunc(Cases(), func(c Case) bool { return c.needs != 0 && !s.can(c.needs) })
}

// Run tries every case against the target, each as a subtest.
func Run(t *testing.T, target Target) {
	t.Helper()
	s, err := connect(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close connection: %v", err)
		}
	})
	for _, c := range s.cases() {
		t.Run(c.Name, func(t *testing.T) { c.run(t, s) })
	}
}

// Result is what became of a case.
type Result struct {
	Case Case
	// Failures say what the plugin did wrong; none if it is right.
	Failures []string
	// Skipped says why the case was not tried.
	Skipped string
}

// Verify tries every case against the target, or only those of the given names,
// and returns what became of them. It is for programs that are no tests.
func Verify(ctx context.Context, target Target, names ...string) ([]Result, error) {
	s, err := connect(ctx, target)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, c := range s.cases() {
		if len(names) == 0 || slices.Contains(names, c.Name) {
			results = append(results, try(ctx, s, c))
		}
	}
	if err := s.close(); err != nil {
		return results, fmt.Errorf("close connection: %w", err)
	}
	return results, nil
}

// try runs a case in a goroutine of its own, which a fatal failure ends.
func try(ctx context.Context, s *session, c Case) Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &recorder{ctx: ctx, result: Result{Case: c}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(r, s)
	}()
	<-done
	return r.result
}

// recorder is a T that notes what is said.
type recorder struct {
	ctx    context.Context
	result Result
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Errorf(format string, args ...any) {
	r.result.Failures = append(r.result.Failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.result.Skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
