package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/internal/mover/runner"
)

// envPrefix begins the environment variable of a flag. It is not SLUICE_, which
// a Populator's template may not set.
const envPrefix = "SOURCE_"

// maxConfig bounds the file with settings.
const maxConfig = 1 << 20

// settings are the flags of one source. What is not on the command line is
// taken from the environment, then from the file of -config, then from the
// default. An empty value is no value: a template's optional fields are empty.
type settings struct {
	*flag.FlagSet
	config *string
}

func newSettings(name, what string, c call) *settings {
	s := &settings{FlagSet: flag.NewFlagSet("sluice-worker "+name, flag.ContinueOnError)}
	s.SetOutput(c.stderr)
	s.Usage = func() {
		fmt.Fprintf(c.stderr, "usage: sluice-worker %s [flags]\n\n%s\n\n"+
			"Each flag can be given as an environment variable, -file-name as %sFILE_NAME, or\n"+
			"in a file of JSON, {\"file-name\": \"…\"}. Flags:\n\n", name, what, envPrefix)
		s.PrintDefaults()
	}
	s.config = s.String("config", "", "`file` with a JSON object of flags")
	return s
}

// parse reads the arguments and what stands in for flags that are not there.
func (s *settings) parse(args []string, env func(string) string) error {
	if err := s.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err //nolint:wrapcheck // a mark, not a failure
		}
		return usageError{fmt.Errorf("read flags: %w", err)}
	}
	if s.NArg() > 0 {
		return usageError{fmt.Errorf("read flags: there is an argument %q too much", s.Arg(0))}
	}
	given := map[string]bool{}
	s.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if value := env(envName("config")); value != "" && !given["config"] {
		*s.config = value
	}
	file, err := s.readConfig()
	if err != nil {
		return usageError{err}
	}
	var errs []error
	s.VisitAll(func(f *flag.Flag) {
		if given[f.Name] || f.Name == "config" {
			return
		}
		value, from := env(envName(f.Name)), envName(f.Name)
		if value == "" {
			value, from = file[f.Name], *s.config
		}
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("read %s of %s: %w", f.Name, from, err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// readConfig reads the file of settings, if there is one. A name that is no
// flag is an error: it is a flag that was misspelt.
func (s *settings) readConfig() (map[string]string, error) {
	if *s.config == "" {
		return nil, nil //nolint:nilnil // no file has no settings
	}
	raw, err := readBounded(*s.config, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var out map[string]string
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("read settings %q: want a JSON object of strings: %w", *s.config, err)
	}
	for name := range out {
		if s.Lookup(name) == nil || name == "config" {
			return nil, fmt.Errorf("read settings %q: there is no flag %q", *s.config, name)
		}
	}
	return out, nil
}

// envName is the environment variable of a flag.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func readBounded(path string, limit int64) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it is for
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, err
}

// list is a flag whose value is a list with commas or spaces.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(text string) error {
	*l = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	return nil
}

// mode is a flag whose value is permission bits in octal digits.
type mode fs.FileMode

// String implements flag.Value.
func (m *mode) String() string {
	if *m == 0 {
		return ""
	}
	return fmt.Sprintf("%04o", uint32(*m))
}

// Set implements flag.Value.
func (m *mode) Set(text string) error {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n == 0 || n > uint64(fs.ModePerm) {
		return errors.New("want octal digits between 0001 and 0777")
	}
	*m = mode(n)
	return nil
}

// onMissing is a flag that says what becomes of a source that has nothing.
type onMissing runner.Options

// Values of onMissing.
const (
	missingFail     = "Fail"
	missingContinue = "Continue"
)

// String implements flag.Value.
func (o *onMissing) String() string {
	if o.ContinueIfMissing {
		return missingContinue
	}
	return missingFail
}

// Set implements flag.Value.
func (o *onMissing) Set(text string) error {
	switch text {
	case missingFail, missingContinue:
		o.ContinueIfMissing = text == missingContinue
		return nil
	default:
		return fmt.Errorf("want %s or %s", missingFail, missingContinue)
	}
}

const missingUsage = "`Fail` or Continue: what becomes of a source that has nothing; Continue leaves the volume empty and succeeds"
