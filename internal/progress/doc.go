// Package progress learns from the logs of running workers how far they are.
//
// A worker prints its progress as lines of JSON, see package api/worker. Of
// each log the last line is read, a bounded part of it, round robin over all
// workers and not more often than the limits below, so that a cluster full of
// workers costs the API server no more than a busy day does. Rounds decides
// what is read when; Sampler reads. What a worker says is passed on as it is:
// whoever shows it bounds it. A read that fails is a read less, and no more.
package progress

import "time"

const (
	// Every is how often one log is read at most.
	Every = 5 * time.Second

	// MinAge is how old a worker is before its log is read: most end sooner.
	MinAge = 5 * time.Second

	// Spacing is the time between two reads, whatever they are of: 20 reads a
	// second. Up to 100 workers are thus read as often as Every allows.
	Spacing = time.Second / 20

	// Stalled is how long a worker may say the same before its rate is taken
	// for zero: it prints nothing while nothing moves.
	Stalled = 15 * time.Second
)
