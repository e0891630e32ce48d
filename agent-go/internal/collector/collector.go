// Package collector is the frame around everything that reads the node: the two interfaces, the guard for calls that
// may never return, and the runner, which alone starts goroutines, times, limits and counts.
//
// A collector states facts. It never judges, never blocks on the network and never turns "not read" into a number.
package collector

import (
	"context"
	"errors"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// ErrAbsent says that this node has no such hardware, driver or file. That is not a failure.
var ErrAbsent = errors.New("absent")

// ErrHung says that a part of what is read does not answer; the rest may have been read well.
var ErrHung = errors.New("hung")

// Emit hands a message on. It fills in what all messages of the node share (cluster, node, boot, and ts and seq where
// they are zero), and never waits for the network. An error means that the message was not kept.
type Emit func(m heelerv1.Message) error

// Collector takes one reading a tick.
type Collector interface {
	// Collect reads once. tick is the nominal time of the tick. What could be read is emitted even when an error is
	// returned; the error says what could not.
	Collect(ctx context.Context, tick time.Time, emit Emit) error
}

// Source stays open and says what happens.
type Source interface {
	// Run returns when ctx ends or the source cannot go on; it is then started again. It calls beat at least once a
	// second while it is well.
	Run(ctx context.Context, beat func(), emit Emit) error
}

// Counter is a collector or source that has counters of its own for the status.
type Counter interface {
	Counts() map[string]uint64
}

// Entry is a row of the agent's table: a Collector or a Source, with how to run it.
type Entry struct {
	Name string
	// Every is the time between ticks of a Collector.
	Every time.Duration
	// Align puts the ticks on multiples of Every by the wall clock, so that all nodes read at the same time. Others
	// get a phase of their own.
	Align bool
	// Deadline is when a reading that still runs is called hung; zero means three ticks, at least 3 s.
	Deadline time.Duration
	// One of the two is set.
	Collector Collector
	Source    Source
	// Off says that the operator switched it off: it is reported, not run.
	Off bool
	// HoldsGPUs says that it keeps the GPU driver open, so that it must stop before a GPU can be reset; Profiles that
	// it uses the GPUs' performance monitors, which a job may want for itself.
	HoldsGPUs, Profiles bool
}

func (e *Entry) deadline() time.Duration {
	if e.Deadline > 0 {
		return e.Deadline
	}
	return max(3*e.Every, 3*time.Second)
}
