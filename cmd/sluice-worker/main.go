// Command sluice-worker fills one volume from one source. It is the image of
// the sources that Sluice ships, and usable in the worker template of any
// Populator:
//
//	sluice-worker files    copies the template's files into the volume
//
// The target comes from the environment (SLUICE_TARGET, SLUICE_VOLUME_MODE).
// Progress goes to standard output as lines of JSON, the result to the
// container's termination message. Exit codes: 0 filled and verified, 1 failed
// and worth another attempt, 2 called wrongly, 3 failed for good, 4 stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/report"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/sink/block"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/files"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a call that no attempt can make right.
type usageError struct{ error }

// run is main without the process around it.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	flags := flag.NewFlagSet("sluice-worker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: sluice-worker [flags] files\n\n"+
			"Fills the volume at $"+worker.EnvTarget+" with the files in $"+worker.EnvFiles+".\n\n")
		flags.PrintDefaults()
	}
	message := flags.String("termination-log", worker.TerminationLog, "file that the result is written to; empty for none")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return worker.ExitOK
		}
		return worker.ExitUsage
	}

	lines := report.NewLines(stdout, time.Now)
	done, err := fill(ctx, flags.Args(), env, lines)
	result, code := runner.Result(ctx, done, err)
	if _, ok := errors.AsType[usageError](err); ok {
		result.Permanent, code = true, worker.ExitUsage
	}
	if err != nil {
		log.Error("volume not filled", "error", err, "reason", result.Reason, "permanent", result.Permanent)
	} else {
		lines.Flush()
		log.Info("volume filled and verified", "bytes", result.Bytes, "files", result.Files, "digest", result.Digest)
	}
	if err := leave(*message, result); err != nil {
		// The exit code still tells the outcome.
		log.Error("result not written", "error", err)
	}
	return code
}

// fill opens both ends and copies.
func fill(ctx context.Context, args []string, env func(string) string, p mover.Progress) (_ worker.Result, err error) {
	from, err := openSource(args, env)
	if err != nil {
		return worker.Result{}, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := openSink(env)
	if err != nil {
		return worker.Result{}, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return runner.Run(ctx, from, to, runner.Options{Progress: p})
}

// closingSource and closingSink are what a copy holds open.
type (
	closingSource interface {
		mover.Source
		io.Closer
	}
	closingSink interface {
		mover.Sink
		io.Closer
	}
)

func openSource(args []string, env func(string) string) (closingSource, error) {
	if len(args) != 1 {
		return nil, usageError{fmt.Errorf("choose source: want one argument that names it, got %d", len(args))}
	}
	switch args[0] {
	case "files":
		directory := env(worker.EnvFiles)
		if directory == "" {
			return nil, usageError{fmt.Errorf("choose source: %s is not set: the template has no files", worker.EnvFiles)}
		}
		return files.Open(directory)
	default:
		return nil, usageError{fmt.Errorf("choose source: there is none called %q; want files", args[0])}
	}
}

func openSink(env func(string) string) (closingSink, error) {
	target := env(worker.EnvTarget)
	if target == "" {
		return nil, usageError{fmt.Errorf("choose target: %s is not set", worker.EnvTarget)}
	}
	switch mode := env(worker.EnvVolumeMode); mode {
	case worker.ModeFilesystem, "":
		return dir.Open(target, dir.Options{ReadBack: true})
	case worker.ModeBlock:
		return block.Open(target, block.Options{ReadBack: true})
	default:
		return nil, usageError{fmt.Errorf("choose target: %s is %q, want %s or %s",
			worker.EnvVolumeMode, mode, worker.ModeFilesystem, worker.ModeBlock)}
	}
}

// leave writes the result where the kubelet looks for it.
func leave(path string, result worker.Result) error {
	if path == "" {
		return nil
	}
	text, err := result.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	return nil
}
