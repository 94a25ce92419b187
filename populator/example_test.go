package populator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Greeting is a source kind.
type Greeting struct {
	Spec struct {
		Name string `json:"name"`
	} `json:"spec"`
}

// A plugin that computes workers, from start to end, and one call of it.
func ExampleServe() {
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "greeting.sock")

	// In a program of its own: signal.NotifyContext.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- populator.Serve(ctx, populator.Plugin[Greeting]{
			Name:  "greeting.example.com",
			Kinds: []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}},
			Worker: populator.WorkerFunc[Greeting](func(_ context.Context, r populator.Request[Greeting]) (*v1alpha1.WorkerTemplate, error) {
				return &v1alpha1.WorkerTemplate{
					Image:   "busybox:latest",
					Command: []string{"sh", "-c", `cp "$SLUICE_FILES/greeting" "$SLUICE_TARGET/"`},
					Files:   []v1alpha1.File{{Name: "greeting", Content: "Hello, " + r.Source.Object.Spec.Name + "!\n"}},
				}, nil
			}),
		}, populator.Unix(socket), populator.WithLogger(slog.New(slog.DiscardHandler)))
	}()

	// This is what Sluice's manager does.
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := populatorv1.NewPopulatorClient(conn).ComputeWorker(ctx, &populatorv1.ComputeWorkerRequest{
		Source: &populatorv1.Source{Json: []byte(`{"spec":{"name":"world"}}`)},
		Volume: &populatorv1.Volume{Name: "pvc-1", CapacityBytes: 1 << 30},
	}, grpc.WaitForReady(true))
	fmt.Println(string(answer.GetWorkerJson()), err)

	stop()
	fmt.Println(errors.Join(conn.Close(), <-served))
	// Output:
	// {"image":"busybox:latest","command":["sh","-c","cp \"$SLUICE_FILES/greeting\" \"$SLUICE_TARGET/\""],"files":[{"name":"greeting","content":"Hello, world!\n"}],"resources":{}} <nil>
	// <nil>
}

// A failure has one word that users and alerts know, and a sentence.
func ExampleReason_Errorf() {
	err := populator.SourceMissing.Errorf("bucket %q has no object %q", "models", "tiny.bin")
	fmt.Println(populator.ReasonOf(err), "-", err)
	fmt.Println(populator.IsPermanent(err), populator.IsPermanent(populator.Permanent(err)))
	// Output:
	// SourceMissing - bucket "models" has no object "tiny.bin"
	// false true
}

// A storage that answers 503 says nothing about the fill: no attempt is lost.
func ExampleUnavailable() {
	err := populator.Unavailable(errors.New("storage answers 503"))
	fmt.Println(populator.ReasonOf(err) == "", err)
	// Output: true storage answers 503
}

// A plugin whose fills are functions: four at a time, noted in a directory that
// outlives the process.
func ExampleBackground() {
	journal, err := populator.FileJournal(filepath.Join(os.TempDir(), "greeting-journal"))
	if err != nil {
		fmt.Println(err)
		return
	}
	plugin := populator.Plugin[Greeting]{
		Name:    "greeting.example.com",
		Kinds:   []populator.Kind{{Group: "greeting.example.com", Kind: "Greeting"}},
		Journal: journal,
		Filler: populator.Background(4, func(ctx context.Context, f populator.Fill[Greeting], report func(populator.Progress)) (string, error) {
			text := "Hello, " + f.Source.Object.Spec.Name
			report(populator.Progress{BytesTotal: int64(len(text))})
			// … write to the volume f.Volume.Handle, until ctx ends …
			return "", ctx.Err()
		}),
	}
	fmt.Println(plugin.Name)
	// Output: greeting.example.com
}
