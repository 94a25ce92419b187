package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// warnings collects what the API server warns a client of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

var _ rest.WarningHandler = (*warnings)(nil)

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

// forget starts anew.
func (w *warnings) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = nil
}

// TestUnknownKind applies a claim of a kind that nobody has heard of: the user
// is warned at once and on the claim, and when the kind, its Populator and the
// source appear, the claim is filled without anybody touching it.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	ns := space(t)
	heard := &warnings{}
	cfg := cluster.RESTConfig()
	cfg.WarningHandler = heard
	user, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wanted := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Late", "src")
	// The API server lets claims pass while the webhook is out of its reach, as
	// it is for a moment when the manager's Pods were replaced.
	dry := createOptions()
	dry.DryRun = []string{metav1.DryRunAll}
	eventually(t, "claims are looked at", 20*time.Second, func(ctx context.Context) error {
		if _, err := user.CoreV1().PersistentVolumeClaims(ns).Create(ctx, wanted, dry); err != nil {
			return err
		}
		if heard.String() == "" {
			return errors.New("no warning")
		}
		return nil
	})
	heard.forget()
	claim, err := user.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), wanted, createOptions())
	if err != nil {
		t.Fatal(err)
	}
	if got := heard.String(); !strings.Contains(got, v1alpha1.ReasonUnrecognizedKind) || !strings.Contains(got, "Late") {
		t.Errorf("the API server warned of %q, want %s and the kind's name", got, v1alpha1.ReasonUnrecognizedKind)
	}
	if note := event(t, ns, "claim", v1alpha1.ReasonUnrecognizedKind); !strings.Contains(note, "Late") {
		t.Errorf("event %s does not name the kind: %q", v1alpha1.ReasonUnrecognizedKind, note)
	}

	t.Cleanup(func() {
		mustClean(t, "delete", "--ignore-not-found", "-f", filepath.Join("testdata", "late-kind.yaml"))
	})
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "late-kind.yaml"))
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/late", "--timeout=30s")
	reason(t, ns, "claim", v1alpha1.ReasonSourceNotFound)
	create(t, source(groupTest, "Late", ns, map[string]any{"text": "better late"}))

	after := succeeded(t, ns, "claim")
	if after.UID != claim.UID || after.Generation != claim.Generation {
		t.Errorf("the claim was made anew or changed: UID %s generation %d, want %s %d", after.UID, after.Generation, claim.UID, claim.Generation)
	}
	pod := reader(ns, "claim", "text", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, "better late\n")
	registered := mustKubectl(t, "get", "volumepopulators", "-o", `jsonpath={range .items[*]}{.sourceKind.kind}{"\n"}{end}`)
	if !strings.Contains(registered, "Late") {
		t.Errorf("no VolumePopulator registers Late: %q", registered)
	}
}

// TestKnownKindsAreNotWarnedOf applies claims that need no populator of ours.
func TestKnownKindsAreNotWarnedOf(t *testing.T) {
	t.Parallel()
	ns := space(t)
	heard := &warnings{}
	cfg := cluster.RESTConfig()
	cfg.WarningHandler = heard
	user, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plain := claimFor(ns, "plain", waiting, corev1.PersistentVolumeFilesystem, "", "", "")
	plain.Spec.DataSourceRef = nil
	clone := claimFor(ns, "clone", waiting, corev1.PersistentVolumeFilesystem, "", "", "")
	clone.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "plain"}
	hello := claimFor(ns, "hello", waiting, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
	for _, c := range []*corev1.PersistentVolumeClaim{plain, clone, hello} {
		if _, err := user.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), c, createOptions()); err != nil {
			t.Errorf("create claim %q: %v", c.Name, err)
		}
	}
	if got := heard.String(); got != "" {
		t.Errorf("the API server warned of %q, want nothing", got)
	}
}

// TestInvalidSource breaks the Populator's rule: its message stands on the
// claim and in the Population, and nothing is made.
func TestInvalidSource(t *testing.T) {
	const message = "fileName must be a plain file name"
	for name, fileName := range map[string]string{"Parent": "..", "Path": "../../etc/passwd", "Empty": "", "Shell": "$(reboot)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": fileName, "fileContents": "x"}))
			claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
			create(t, claim)
			if got := reason(t, ns, "claim", v1alpha1.ReasonInvalidSource); !strings.Contains(got, message) {
				t.Errorf("the population says %q, want %q in it", got, message)
			}
			if got := event(t, ns, "claim", v1alpha1.ReasonInvalidSource); !strings.Contains(got, message) {
				t.Errorf("the event says %q, want %q in it", got, message)
			}
			if found, err := temporaries(t.Context(), claim.UID); err != nil || len(found) > 0 {
				t.Errorf("temporaries of an invalid source: %v (%v), want none", found, err)
			}
			// Corrected, the source is taken up at once.
			fixed := source(groupHello, "Hello", ns, nil)
			if _, err := get(t.Context(), ns, "src", fixed); err != nil {
				t.Fatal(err)
			}
			fixed.Object["spec"] = map[string]any{"fileName": "file", "fileContents": "x"}
			if err := kube.Update(t.Context(), fixed); err != nil {
				t.Fatal(err)
			}
			succeeded(t, ns, "claim")
		})
	}
}

// TestHostileContents fills a volume from a source whose texts would mean
// something to a shell and to the kubelet: they arrive byte by byte.
func TestHostileContents(t *testing.T) {
	t.Parallel()
	ns := space(t)
	contents := `$(PATH) ${HOME} $$(NAME) "quoted" 'single' \n ; rm -rf / # ` + "`id`"
	create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "file", "fileContents": contents}))
	create(t, claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src"))
	succeeded(t, ns, "claim")
	pod := reader(ns, "claim", "file", corev1.PersistentVolumeFilesystem)
	create(t, pod)
	prints(t, pod, contents+"\n")
}

// TestInvalidPopulator applies Populators that cannot work: each is refused
// with the path of the field.
func TestInvalidPopulator(t *testing.T) {
	cases := map[string]struct{ reason, spec, want string }{
		"Command": {
			reason: "a shell line built from a source is code execution",
			spec:   `worker: {image: busybox, command: [sh, -c, "echo ${source.spec.text}"]}`, want: "spec.worker.command[2]",
		},
		"Compile": {
			reason: "an expression that does not compile",
			spec:   `worker: {image: busybox, env: [{name: A, value: "${source.spec.}"}]}`, want: "spec.worker.env[0].value",
		},
		"UnknownInSchema": {
			reason: "the source's schema is known, so a wrong field is, too",
			spec:   `worker: {image: busybox, env: [{name: A, value: "${source.spec.nonsense}"}]}`, want: "spec.worker.env[0].value",
		},
		"Rule": {
			reason: "a rule must be true or false",
			spec:   `{worker: {image: busybox}, validations: [{rule: "source.spec.fileName", message: m}]}`, want: "spec.validations[0].rule",
		},
		"NoImage": {reason: "a worker needs an image", spec: `worker: {command: [sh]}`, want: "spec.worker.image"},
		"Both": {
			reason: "worker and plugin exclude each other",
			spec:   `{worker: {image: busybox}, plugin: {socket: /run/sluice/x.sock}}`, want: "exactly one of worker and plugin",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := strings.TrimSuffix(strings.TrimPrefix(tc.spec, "{"), "}")
			if !strings.HasPrefix(tc.spec, "{") {
				spec = tc.spec
			}
			text := fmt.Sprintf(`{apiVersion: sluice.dev/v1alpha1, kind: Populator, metadata: {name: wrong}, spec: {sourceKind: {group: hello.k8s.io, kind: Hello}, %s}}`, spec)
			out, err := kubectlIn(t.Context(), text, "create", "-f", "-")
			if err == nil {
				t.Errorf("%s: accepted", tc.reason)
				mustKubectl(t, "delete", "populator", "wrong")
			} else if !strings.Contains(out, tc.want) {
				t.Errorf("%s: refused with\n%s\nwant %q in it", tc.reason, out, tc.want)
			}
		})
	}
	out, err := kubectlIn(t.Context(), `{apiVersion: sluice.dev/v1alpha1, kind: Populator, metadata: {name: wrong},
		spec: {sourceKind: {group: hello.k8s.io, kind: Hello}, worker: {image: busybox, cmd: [sh]}}}`, "create", "-f", "-")
	if err == nil || !strings.Contains(out, "spec.worker.cmd") {
		t.Errorf("an unknown field: %v\n%s\nwant it named", err, out)
	}
}

// mustClean is kubectl for cleaning up, when the test's own context has ended.
func mustClean(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if out, err := kubectl(ctx, args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
