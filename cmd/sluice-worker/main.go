// Command sluice-worker fills one volume from one source. It is the image of
// the sources that Sluice ships, and usable in the worker template of any
// Populator:
//
//	sluice-worker files     copies the template's files into the volume
//	sluice-worker inline    writes the files of a manifest
//	sluice-worker http      fetches a file or an archive
//	sluice-worker offered   looks whether Secrets are offered; fills nothing
//
// Each takes flags, which can be given as environment variables and in a file
// as well: see docs/worker.md. The target comes from the environment
// (SLUICE_TARGET, SLUICE_VOLUME_MODE). Progress goes to standard output as lines
// of JSON, the result to the container's termination message. Exit codes: 0
// filled and verified, 1 failed and worth another attempt, 2 called wrongly, 3
// failed for good, 4 stopped.
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
		fmt.Fprint(stderr, "usage: sluice-worker [flags] SOURCE [flags of the source]\n\n"+
			"Fills the volume at $"+worker.EnvTarget+". Sources:\n\n")
		for _, c := range commands {
			fmt.Fprintf(stderr, "  %-8s %s\n", c.name, c.what)
		}
		fmt.Fprint(stderr, "\nsluice-worker SOURCE -help lists the flags of a source. Flags:\n\n")
		flags.PrintDefaults()
	}
	message := flags.String("termination-log", worker.TerminationLog, "`file` that the result is written to; empty for none")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return worker.ExitOK
		}
		return worker.ExitUsage
	}

	lines := report.NewLines(stdout, time.Now)
	done, err := fill(ctx, flags.Args(), call{env: env, log: log, stderr: stderr}, lines)
	if errors.Is(err, flag.ErrHelp) {
		return worker.ExitOK
	}
	result, code := runner.Result(ctx, done, err)
	if _, ok := errors.AsType[usageError](err); ok {
		result.Permanent, code = true, worker.ExitUsage
	}
	if err != nil {
		log.Error("volume not filled", "error", err, "reason", result.Reason, "permanent", result.Permanent)
	} else {
		lines.Flush()
		log.Info("volume filled and verified", "bytes", result.Bytes, "files", result.Files, "digest", result.Digest, "message", result.Message)
	}
	if err := leave(*message, result); err != nil {
		// The exit code still tells the outcome.
		log.Error("result not written", "error", err)
	}
	return code
}

// fill opens both ends and copies.
func fill(ctx context.Context, args []string, c call, p mover.Progress) (_ worker.Result, err error) {
	j, err := openJob(args, c)
	if err != nil {
		return worker.Result{}, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	if j.done != nil {
		return *j.done, nil
	}
	j.run.Progress = p
	return runner.Run(ctx, j.from, j.to, j.run)
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
