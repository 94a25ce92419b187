package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
)

func TestOffered(t *testing.T) {
	const kind = "Hello.hello.k8s.io"
	cases := map[string]struct {
		reason  string
		secrets map[string]map[string]string
		code    int
		says    string
	}{
		"Offered": {
			reason:  "each was offered to the kind",
			secrets: map[string]map[string]string{"a": {"k": "v", "sluice.dev.offer": kind + "\n"}, "b": {"sluice.dev.offer": "Other.example\n" + kind}},
		},
		"NoOffer": {
			reason:  "its owner said nothing",
			secrets: map[string]map[string]string{"a": {"sluice.dev.offer": kind}, "b": {"password": "s3cret"}},
			code:    worker.ExitPermanent, says: `Secret "b"`,
		},
		"OtherKind": {
			reason:  "it was offered to another kind",
			secrets: map[string]map[string]string{"a": {"sluice.dev.offer": "Hello.other"}}, code: worker.ExitPermanent, says: kind,
		},
		"ForHosts": {
			reason:  "which hosts a foreign worker talks to cannot be told",
			secrets: map[string]map[string]string{"a": {"sluice.dev.offer": kind + " example.com"}}, code: worker.ExitPermanent, says: `Secret "a"`,
		},
		"Empty": {
			reason:  "what holds nothing yet may hold anything once the worker runs",
			secrets: map[string]map[string]string{"a": {}}, code: worker.ExitPermanent, says: `Secret "a"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for secret, keys := range tc.secrets {
				if err := os.Mkdir(filepath.Join(dir, secret), 0o700); err != nil {
					t.Fatal(err)
				}
				if len(keys) > 0 {
					movertest.Mount(t, filepath.Join(dir, secret), keys)
				}
			}
			code, result, output := callWorker(t, []string{"offered"}, map[string]string{"SOURCE_SECRETS": dir, "SOURCE_REQUIRE_OFFER": kind})
			if code != tc.code {
				t.Fatalf("%s: exit code %d, want %d: %s", tc.reason, code, tc.code, output)
			}
			if code != 0 && (result.Reason != worker.ReasonSecretNotOffered || !result.Permanent || !strings.Contains(result.Message, tc.says)) {
				t.Errorf("%s: result %+v, want one that says %s", tc.reason, result, tc.says)
			}
			if strings.Contains(output, "s3cret") {
				t.Error("the value of a Secret is printed")
			}
		})
	}
	if code, _, _ := callWorker(t, []string{"offered"}, nil); code != worker.ExitUsage {
		t.Errorf("without settings the code is %d, want %d", code, worker.ExitUsage)
	}
}

// lateSecret is a source whose Secret appears while it is listed.
type lateSecret struct {
	closingSource
	appear func()
}

func (s lateSecret) Resolve(context.Context) (mover.Revision, error) {
	s.appear()
	return mover.Revision{}, nil
}

func TestSecretThatAppearsLateIsLookedInto(t *testing.T) {
	const kind = "InlineSource.sluice.dev"
	for name, tc := range map[string]struct {
		keys map[string]string
		want string
	}{
		"Never":      {},
		"Offered":    {keys: map[string]string{"k": "v", "sluice.dev.offer": kind}},
		"NotOffered": {keys: map[string]string{"k": "v"}, want: worker.ReasonSecretNotOffered},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			look := func() error { return offered(dir, "of the source", kind, true) }
			if err := look(); err != nil {
				t.Fatalf("what is not there needs an offer: %v", err)
			}
			s := offeredSource{closingSource: lateSecret{appear: func() {
				if len(tc.keys) > 0 {
					movertest.Mount(t, dir, tc.keys)
				}
			}}, look: look}
			_, err := s.Resolve(t.Context())
			reason := ""
			if err != nil {
				reason, _ = mover.Classify(err)
			}
			if reason != tc.want {
				t.Errorf("Resolve: %v, want reason %q", err, tc.want)
			}
		})
	}
}
