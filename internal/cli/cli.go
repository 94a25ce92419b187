// Package cli holds what the verbs of kubectl sluice have in common: where they
// read and write, which cluster they talk to, how a claim is named on the
// command line, and what their exit codes mean.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// Exit codes of every verb.
const (
	// ExitOK: done, or all is well.
	ExitOK = 0
	// ExitError: the verb could not do its work.
	ExitError = 1
	// ExitUsage: the verb was called wrongly.
	ExitUsage = 2
	// ExitAct: the verb did its work and found that someone must act.
	ExitAct = 3
)

// IOStreams are where a verb reads answers and writes.
type IOStreams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// UsageError is a call that is wrong whatever the cluster says.
type UsageError struct{ Err error }

// Error returns the message of the error within.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error within.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrAct is returned by a verb that has said on its output what someone must
// do; nothing more is printed for it.
var ErrAct = errors.New("someone must act")

// ExitCode returns the exit code that an error of a verb stands for.
func ExitCode(err error) int {
	var usage UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrAct):
		return ExitAct
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitError
}

// ClaimName reads the name of a claim from arguments: pvc/NAME or pvc NAME,
// with any of the names that kubectl knows for claims.
func ClaimName(args []string) (string, error) {
	const want = "name one claim as pvc/NAME"
	var kind, name string
	switch len(args) {
	case 1:
		var ok bool
		if kind, name, ok = strings.Cut(args[0], "/"); !ok {
			return "", Usagef("%q is no claim: %s", args[0], want)
		}
	case 2:
		kind, name = args[0], args[1]
	default:
		return "", Usagef("%d arguments: %s", len(args), want)
	}
	switch strings.ToLower(kind) {
	case "pvc", "persistentvolumeclaim", "persistentvolumeclaims":
	default:
		return "", Usagef("%q is no kind that Sluice fills: %s", kind, want)
	}
	if problems := utilvalidation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", Usagef("%q is no name of a claim: %s", name, problems[0])
	}
	return name, nil
}

// Missing says which right an error is about, as verb, resource and namespace;
// ok is false for any other error.
func Missing(err error, verb, resource, namespace string) (right string, ok bool) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return "", false
	}
	if namespace == "" {
		return verb + " " + resource + " in the whole cluster", true
	}
	return fmt.Sprintf("%s %s in namespace %q", verb, resource, namespace), true
}

// Absent says that an error means that there is no such object, or that the
// cluster does not know its kind.
func Absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Clean makes text of others safe for a terminal: one line, without control
// characters.
func Clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(s), " ")
}
