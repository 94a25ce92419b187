// Package component runs the programs of a cluster: it starts them as soon as
// what they need is ready, waits for each to answer its readiness probe,
// notices one that dies, and stops them in the opposite order.
package component

import (
	"context"
	"time"
)

// A Unit is one step of a start: a program that keeps running (Command), or
// work that ends (Step).
type Unit struct {
	// Name is unique in a Group. Other units name it in After, and the log of
	// a command is kept under it.
	Name string
	// After names the units that have to be ready first.
	After []string
	// Command is a program that runs until the group stops. Exactly one of
	// Command and Step is set.
	Command *Command
	// Step is work done once; the unit is ready when it returns nil.
	Step func(ctx context.Context) error
	// Deadline bounds the time from start to ready. Default: one minute.
	Deadline time.Duration
}

// Command is a program and how to tell that it is ready.
type Command struct {
	// Path is the program; Args its arguments without the program's name.
	Path string
	Args []string
	// Env is added to the environment, as name=value.
	Env []string
	// Namespace is where it runs; nil means where the group runs.
	Namespace Namespace
	// Ready says whether the program serves; nil means ready once started.
	Ready Probe
	// Grace is how long the program may take to end after SIGTERM before it is
	// killed. Default: five seconds.
	Grace time.Duration
}

// A Probe returns nil when a program serves. It is called often and must
// return soon; the error of the last call is shown when the deadline passes.
type Probe func(ctx context.Context) error

// A Namespace runs fn on a thread that is inside Linux namespaces of its own,
// so that processes which fn starts are too.
type Namespace interface {
	Run(fn func() error) error
}

// Event tells what became of a unit, for progress and measurements.
type Event struct {
	// Unit is the unit's name.
	Unit string `json:"unit"`
	// Took is the time from the unit's start until it was ready.
	Took time.Duration `json:"took"`
	// Since is the time from the group's start until the unit was ready.
	Since time.Duration `json:"since"`
}

const (
	defaultDeadline = time.Minute
	defaultGrace    = 5 * time.Second
	probeInterval   = 40 * time.Millisecond
)
