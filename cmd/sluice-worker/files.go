package main

import (
	"fmt"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover/credential"
	"github.com/sluice-dev/sluice/internal/mover/sink/dir"
	"github.com/sluice-dev/sluice/internal/mover/source/files"
	"github.com/sluice-dev/sluice/internal/mover/source/inline"
)

// openFiles is the command files.
func openFiles(args []string, c call, j *job) error {
	s := newSettings("files", "Copies the files of the template, in $"+worker.EnvFiles+", into the volume.", c)
	s.Var((*onMissing)(&j.run), "on-missing", missingUsage)
	if err := s.parse(args, c.env); err != nil {
		return err
	}
	directory := c.env(worker.EnvFiles)
	if directory == "" {
		return usageError{fmt.Errorf("choose source: %s is not set: the template has no files", worker.EnvFiles)}
	}
	from, err := files.Open(directory)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	j.from = from
	return j.openTarget(c, dir.Options{ReadBack: true})
}

// openInline is the command inline.
func openInline(args []string, c call, j *job) error {
	s := newSettings("inline", "Writes the files that a manifest names into the volume.", c)
	s.Var((*onMissing)(&j.run), "on-missing", missingUsage)
	manifest := s.String("manifest", "", "`file` that says what to write; see docs/worker.md")
	configMap := s.String("config-map", "", "`directory` that the manifest calls configMap")
	secret := s.String("secret", "", "`directory` that the manifest calls secret")
	requireOffer := s.String("require-offer", "", "use the Secret only if its key "+credential.OfferKey+" offers it to this `kind`, such as InlineSource.sluice.dev")
	if err := s.parse(args, c.env); err != nil {
		return err
	}
	if *manifest == "" {
		return usageError{fmt.Errorf("choose source: want -manifest or %s", envName("manifest"))}
	}
	text, err := readBounded(*manifest, inline.MaxManifest)
	if err != nil {
		return usageError{fmt.Errorf("read manifest: %w", err)}
	}
	m, err := inline.ParseManifest(text)
	if err != nil {
		return usageError{err}
	}
	directories := map[string]string{}
	for name, directory := range map[string]string{"configMap": *configMap, "secret": *secret} {
		if directory != "" {
			directories[name] = directory
		}
	}
	j.from = inline.New(inline.Options{Manifest: m, Directories: directories})
	if *secret != "" && *requireOffer != "" {
		look := func() error { return offered(*secret, "of the source", *requireOffer, true) }
		if err := look(); err != nil {
			return err
		}
		j.from = offeredSource{closingSource: j.from, look: look}
	}
	return j.openTarget(c, dir.Options{ReadBack: true})
}
