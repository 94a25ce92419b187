package populatortest

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var validateCases = []Case{
	{Name: "Validate/Valid", Rule: "A valid source is valid, however often it is asked about.", run: validateValid},
	{Name: "Validate/Invalid", Rule: "What is wrong with a source is said in one sentence, the same each time.", run: validateInvalid},
}

var primeCases = []Case{
	{Name: "Prime/SameTwice", Rule: "MutatePrime answers the same to the same request.", run: primeSame},
	{Name: "Prime/Bounds", Rule: "Labels and annotations are such as the API server takes, of domains that may be set.", run: primeBounds},
}

func (s *session) method(name string) rpc {
	for _, r := range rpcs {
		if r.name == name {
			return r
		}
	}
	panic("no method " + name)
}

func validateValid(t T, s *session) {
	r := s.method("ValidateSource")
	for range 2 {
		answer, err := s.invoke(t.Context(), r, r.request(t, s, s.Source))
		if err != nil || refusal(answer, err) {
			t.Fatalf("ValidateSource of a valid source: got %v, %v", answer, err)
		}
	}
}

func validateInvalid(t T, s *session) {
	invalid := optional(t, s.Invalid, "invalid")
	r := s.method("ValidateSource")
	var first string
	for range 2 {
		answer, err := s.invoke(t.Context(), r, &populatorv1.ValidateSourceRequest{Source: invalid})
		if err != nil {
			t.Fatalf("ValidateSource of an invalid source: %v; want the sentence in the answer", err)
		}
		a, ok := answer.(*populatorv1.ValidateSourceResponse)
		if !ok || a.GetInvalid() == "" {
			t.Fatalf("ValidateSource of an invalid source says that it is valid")
		}
		if err := said(a.GetInvalid()); err != nil {
			t.Errorf("the sentence about an invalid source: %v: %.80q", err, a.GetInvalid())
		}
		if first == "" {
			first = a.GetInvalid()
		}
		if first != a.GetInvalid() {
			t.Errorf("the same source is invalid for another reason the second time: %q, %q", first, a.GetInvalid())
		}
	}
}

func primeSame(t T, s *session) {
	r := s.method("MutatePrime")
	request := r.request(t, s, s.Source)
	first, err := s.invoke(t.Context(), r, request)
	if err != nil {
		t.Fatalf("MutatePrime: %v", err)
	}
	second, err := s.invoke(t.Context(), r, request)
	if err != nil {
		t.Fatalf("MutatePrime, again: %v", err)
	}
	if !proto.Equal(first, second) {
		t.Errorf("MutatePrime says %v to what it said %v to before", second, first)
	}
}

func primeBounds(t T, s *session) {
	r := s.method("MutatePrime")
	answer, err := s.invoke(t.Context(), r, r.request(t, s, s.Source))
	if err != nil {
		t.Fatalf("MutatePrime: %v", err)
	}
	a, ok := answer.(*populatorv1.MutatePrimeResponse)
	if !ok {
		t.Fatalf("MutatePrime answers with a %T", answer)
	}
	if len(a.GetLabels()) > 32 {
		t.Errorf("%d labels, want at most 32", len(a.GetLabels()))
	}
	for key, value := range a.GetLabels() {
		checkKey(t, "label", key)
		for _, wrong := range validation.IsValidLabelValue(value) {
			t.Errorf("label %q has value %.80q: %s", key, value, wrong)
		}
	}
	size := 0
	for key, value := range a.GetAnnotations() {
		checkKey(t, "annotation", key)
		size += len(key) + len(value)
	}
	if size > 64<<10 {
		t.Errorf("annotations take %d bytes, want at most 64 KiB", size)
	}
}

// checkKey checks the key of a label or an annotation.
func checkKey(t T, what, key string) {
	t.Helper()
	for _, wrong := range validation.IsQualifiedName(key) {
		t.Errorf("%s key %.80q: %s", what, key, wrong)
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, owned := range []string{"kubernetes.io", "k8s.io", "sluice.dev"} {
		if domain == owned || strings.HasSuffix(domain, "."+owned) {
			t.Errorf("%s key %q is of the domain %s, which plugins may not use", what, key, owned)
		}
	}
}
