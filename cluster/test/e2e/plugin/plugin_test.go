package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/cluster/helm"
)

// served applies what the example's README has an administrator apply.
func served(t *testing.T) {
	t.Helper()
	must(t, "apply", "-f", filepath.Join(folder, "hello-crd.yaml"))
	must(t, "wait", "--for=condition=Established", "crd/hellos.hello.example.com", "--timeout=30s")
	must(t, "apply", "-f", filepath.Join(folder, "hello-populator.yaml"))
	must(t, "wait", "--for=condition=Accepted", "populator/hello-plugin", "--timeout=60s")
}

// TestExample is the README of the example, command by command.
func TestExample(t *testing.T) {
	ns := space(t, "example")
	served(t)
	for _, file := range []string{"example-hello.yaml", "example-pvc.yaml", "example-job.yaml"} {
		apply(t, ns, file)
	}
	must(t, "-n", ns, "wait", "--for=condition=Complete", "job/example-job", "--timeout=90s")
	if got := must(t, "-n", ns, "logs", "job/example-job"); got != "Hello, world!\n" {
		t.Errorf("kubectl logs job/example-job = %q, want what the source says", got)
	}
	must(t, "-n", ns, "wait", "--for=jsonpath={.status.phase}=Succeeded", "population/example-pvc", "--timeout=30s")
	if got := must(t, "-n", ns, "get", "events", "--field-selector=type=Warning,reportingComponent=sluice.dev/population"); !strings.Contains(got, "No resources found") {
		t.Errorf("there are Warning events of ours:\n%s", got)
	}
	if got := must(t, "get", "populator", "hello-plugin", "-o", "jsonpath={.status.plugin.name} {.status.plugin.capabilities}"); got != `hello.example.com ["ComputeWorker","ValidateSource"]` {
		t.Errorf("the Populator says of its plugin %q", got)
	}
}

// TestNoToken: the rights of the manager are not a plugin's.
func TestNoToken(t *testing.T) {
	got := must(t, "-n", helm.Namespace, "get", "pods", "-l", "app.kubernetes.io/component=manager",
		"-o", `jsonpath={.items[*].spec.containers[?(@.name=="hello")].volumeMounts[*].mountPath}`)
	if mounts := strings.Fields(got); len(mounts) == 0 || slices.ContainsFunc(mounts, func(m string) bool { return m != "/run/sluice" }) {
		t.Errorf("the side-cars have mounts %q, want the folder of the socket alone", mounts)
	}
}

// TestBlock has the plugin compute another worker for a device.
func TestBlock(t *testing.T) {
	ns := space(t, "block")
	served(t)
	apply(t, ns, "example-hello.yaml")
	edited(t, ns, "example-pvc.yaml", "volumeMode: Filesystem", "volumeMode: Block")
	edited(t, ns, "example-job.yaml",
		"volumeMounts:", "volumeDevices:", "mountPath: /mnt", "devicePath: /dev/vol",
		"- cat\n        - /mnt/example.txt", "- head\n        - -n1\n        - /dev/vol")
	must(t, "-n", ns, "wait", "--for=condition=Complete", "job/example-job", "--timeout=90s")
	if got := must(t, "-n", ns, "logs", "job/example-job"); got != "Hello, world!\n" {
		t.Errorf("the device begins with %q, want what the source says", got)
	}
}

// TestInvalidSource is refused in the plugin's words, and healed by a correction.
func TestInvalidSource(t *testing.T) {
	ns := space(t, "invalid")
	served(t)
	edited(t, ns, "example-hello.yaml", "example.txt", "../etc/passwd")
	apply(t, ns, "example-pvc.yaml")
	apply(t, ns, "example-job.yaml")
	eventually(t, "the claim says what is wrong with its source", func(ctx context.Context) error {
		out, err := kubectl(ctx, "-n", ns, "describe", "pvc", "example-pvc")
		if err != nil {
			return err
		}
		for _, says := range []string{"InvalidSource", `spec.fileName is "../etc/passwd" and must be a plain file name`} {
			if !strings.Contains(out, says) {
				return fmt.Errorf("kubectl describe does not say %q:\n%s", says, out)
			}
		}
		return nil
	})
	apply(t, ns, "example-hello.yaml")
	must(t, "-n", ns, "wait", "--for=condition=Complete", "job/example-job", "--timeout=90s")
}

// edited applies a file of the example with pairs of texts replaced.
func edited(t *testing.T, namespace, file string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(pairs...).Replace(string(text))
	if changed == string(text) {
		t.Fatalf("%s holds none of %q", file, pairs)
	}
	path := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "-n", namespace, "apply", "-f", path)
}
