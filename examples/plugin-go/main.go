// Command plugin-go is a plugin for Sluice in Go: the hello populator of the
// volume populator tutorial, with its worker computed by code.
//
// What code is for here: a file system gets a file, and a block device gets the
// line itself, which one template cannot both say.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
)

// Hello is the source: what hello-crd.yaml defines.
type Hello struct {
	Spec struct {
		FileName     string `json:"fileName"`
		FileContents string `json:"fileContents"`
	} `json:"spec"`
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// valid refuses what would not become a file of the volume.
func valid(_ context.Context, s populator.Source[Hello]) error {
	if !plainName.MatchString(s.Object.Spec.FileName) {
		return fmt.Errorf("spec.fileName is %q and must be a plain file name", s.Object.Spec.FileName)
	}
	return nil
}

// worker is the Pod that writes. What the source says arrives in its environment,
// never in its command.
func worker(ctx context.Context, r populator.Request[Hello]) (*v1alpha1.WorkerTemplate, error) {
	if err := valid(ctx, r.Source); err != nil {
		return nil, populator.Permanent(populator.InvalidSource.Errorf("%w", err))
	}
	hello := r.Source.Object.Spec
	if size := int64(len(hello.FileContents)) + 1; r.Volume.Provisioned() && size > r.Volume.Capacity {
		return nil, populator.Permanent(populator.VolumeTooSmall.Errorf(
			"the file takes %d bytes and the volume has %d: ask for more in the claim", size, r.Volume.Capacity))
	}
	write := `printf '%s\n' "$CONTENTS" > "$SLUICE_TARGET/$NAME"`
	if r.Volume.Block {
		write = `printf '%s\n' "$CONTENTS" | dd of="$SLUICE_TARGET" conv=fsync,notrunc`
	}
	return &v1alpha1.WorkerTemplate{
		Image:   "busybox:latest",
		Command: []string{"sh", "-c", write},
		Env:     []corev1.EnvVar{{Name: "NAME", Value: hello.FileName}, {Name: "CONTENTS", Value: hello.FileContents}},
	}, nil
}

func main() {
	socket := flag.String("socket", "/run/sluice/hello.sock", "unix socket to listen on")
	listen := flag.String("listen", "", "address to listen on instead, with TLS, such as :9443")
	certs := flag.String("certs", "/certs", "directory of tls.crt, tls.key and ca.crt, the authority of clients")
	flag.Parse()

	at := populator.Unix(*socket)
	if *listen != "" {
		at = populator.MutualTLS(*listen, populator.TLSFiles{
			Cert: *certs + "/tls.crt", Key: *certs + "/tls.key", ClientCA: *certs + "/ca.crt",
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := populator.Serve(ctx, populator.Plugin[Hello]{
		Name:      "hello.example.com",
		Kinds:     []populator.Kind{{Group: "hello.example.com", Kind: "Hello"}},
		Validator: populator.ValidatorFunc[Hello](valid),
		Worker:    populator.WorkerFunc[Hello](worker),
	}, at)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
