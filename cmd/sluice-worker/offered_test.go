package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/worker"
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
		"Missing": {reason: "what does not exist needs no offer", secrets: map[string]map[string]string{"a": {}}},
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
