package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover"
	"github.com/sluice-dev/sluice/internal/mover/runner"
	"github.com/sluice-dev/sluice/internal/mover/sink/block"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
)

// call is what a command is called with beside its arguments.
type call struct {
	env    func(string) string
	log    *slog.Logger
	stderr io.Writer
}

// A command opens one kind of source, and the target the way it wants it.
type command struct {
	name, what string
	open       func(args []string, c call, j *job) error
}

// commands are the sources, in the order that help shows them in.
var commands = []command{
	{"files", "copies the template's files into the volume", openFiles},
	{"inline", "writes the files of a manifest, and of mounted ConfigMaps and Secrets", openInline},
	{"offered", "looks whether Secrets are offered to a kind of source; fills nothing", openOffered},
	{"http", "fetches a file or what is in an archive over HTTP", openHTTP},
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

// job is one copy, ready to run.
type job struct {
	from closingSource
	to   closingSink
	run  runner.Options
	// done is the result of a command that has nothing to copy.
	done *worker.Result
}

func (j *job) close() error {
	var errs []error
	if j.from != nil {
		errs = append(errs, j.from.Close())
	}
	if j.to != nil {
		errs = append(errs, j.to.Close())
	}
	return errors.Join(errs...)
}

func openJob(args []string, c call) (*job, error) {
	if len(args) == 0 {
		return nil, usageError{errors.New("choose source: want an argument that names it")}
	}
	for _, cmd := range commands {
		if cmd.name == args[0] {
			j := &job{}
			if err := cmd.open(args[1:], c, j); err != nil {
				return nil, errors.Join(err, j.close())
			}
			return j, nil
		}
	}
	return nil, usageError{fmt.Errorf("choose source: there is none called %q", args[0])}
}

// openTarget opens the volume.
func (j *job) openTarget(c call, opts dir.Options) error {
	target := c.env(worker.EnvTarget)
	if target == "" {
		return usageError{fmt.Errorf("choose target: %s is not set", worker.EnvTarget)}
	}
	if opts.Ownership && os.Geteuid() != 0 {
		return mover.Permanent(worker.ReasonVolumeNotWritable, errors.New("open target: only a worker that runs as root can give files their owners"))
	}
	switch mode := c.env(worker.EnvVolumeMode); mode {
	case worker.ModeFilesystem, "":
		s, err := dir.Open(target, opts)
		if err != nil {
			return err //nolint:wrapcheck // it says what it is about
		}
		j.to = s
	case worker.ModeBlock:
		s, err := block.Open(target, block.Options{ReadBack: opts.ReadBack})
		if err != nil {
			return err //nolint:wrapcheck // it says what it is about
		}
		j.to = s
	default:
		return usageError{fmt.Errorf("choose target: %s is %q, want %s or %s",
			worker.EnvVolumeMode, mode, worker.ModeFilesystem, worker.ModeBlock)}
	}
	return nil
}
