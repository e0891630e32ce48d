// Package host reads what the node itself is doing: CPU time, load, memory, pressure, threads in uninterruptible sleep,
// and the PCIe error counters (AER) of its devices, from /proc and /sys.
//
// It needs no privileges: all of it is readable by anyone (with hidepid on /proc, other users' threads are not seen). A
// reading costs two or three milliseconds, and up to about 20 more for the sweep over the threads, which is spread over
// several readings when there are many. What a kernel does not have (pressure, AER in a virtual machine) is absent, with
// the reason.
package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// Options say what to read.
type Options struct {
	Proc string
	Sys  string
	// Jobs finds the job of a process.
	Jobs *hostfs.Jobs
	Now  func() time.Time
	// SweepReads is how many threads are looked at in one reading; 2000 if zero.
	SweepReads int
}

// Collector implements [collector.Collector].
type Collector struct {
	Options
	reader hostfs.Reader
	before *stat
	last   time.Time
	sweep  sweep
	aer    aer
}

// defaultSweepReads takes about 20 ms, a fifth of a percent of a core at a reading each 10 s.
const defaultSweepReads = 2000

// firstSweep lets the first sweep go on for so many times as long, since nothing is known before its end.
const firstSweep = 5

// New returns a collector.
func New(o Options) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SweepReads <= 0 {
		o.SweepReads = defaultSweepReads
	}
	return &Collector{
		Options: o,
		sweep:   sweep{proc: o.Proc, jobs: o.Jobs},
		aer:     aer{dir: filepath.Join(o.Sys, "bus", "pci", "devices")},
	}
}

// Counts implements [collector.Counter].
func (c *Collector) Counts() map[string]uint64 {
	if c.Jobs == nil {
		return nil
	}
	return map[string]uint64{"processes_of_unnumbered_jobs": c.Jobs.Unresolved()}
}

// Collect implements [collector.Collector].
func (c *Collector) Collect(_ context.Context, _ time.Time, emit collector.Emit) error {
	now := c.Now()
	m := &heelerv1.HostSample{Absent: map[string]string{}}
	if !c.last.IsZero() {
		m.WindowNS = heelerv1.Some(uint64(now.Sub(c.last)))
	}
	c.last = now
	failed := errors.Join(c.cpu(m), c.load(m), c.memory(m))
	c.pressure(m)
	c.threads(m)
	c.aer.read(m, &c.reader)
	return errors.Join(failed, emit(m))
}

// file reads and parses a file; why it could not goes to absent, under the names of what it would have given.
func file[T any](c *Collector, m *heelerv1.HostSample, path string, parse func([]byte) (T, error), names ...string) (T, error) {
	text, err := c.reader.Read(filepath.Join(c.Proc, path))
	var value T
	if err == nil {
		if value, err = parse(text); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		for _, name := range names {
			m.Absent[name] = hostfs.Reason(err)
		}
	}
	return value, err
}

func (c *Collector) cpu(m *heelerv1.HostSample) error {
	after, err := file(c, m, "stat", parseStat, "cpu_ratio", "cpus", "procs_running", "procs_blocked")
	if err != nil {
		c.before = nil
		return err
	}
	m.CPUs, m.ProcsRunning, m.ProcsBlocked = &after.cpus, after.running, after.blocked
	if c.before == nil {
		m.Absent["cpu_ratio"] = "first_reading"
	} else if m.CPURatio = ratios(c.before, after); m.CPURatio == nil {
		m.Absent["cpu_ratio"] = "no_time_passed"
	}
	c.before = after
	return nil
}

func (c *Collector) load(m *heelerv1.HostSample) error {
	load, err := file(c, m, "loadavg", parseLoad, "load1", "load5", "load15")
	if err != nil {
		return err
	}
	m.Load1, m.Load5, m.Load15 = &load[0], &load[1], &load[2]
	return nil
}

func (c *Collector) memory(m *heelerv1.HostSample) (err error) {
	m.MemoryBytes, err = file(c, m, "meminfo", parseMemory, "memory_bytes")
	return err
}

// pressure reads the stall information, which a kernel may lack, have switched off, or have in part.
func (c *Collector) pressure(m *heelerv1.HostSample) {
	for _, resource := range [...]string{"cpu", "memory", "io", "irq"} {
		lines, err := file(c, m, "pressure/"+resource, parsePressure, "pressure_"+resource)
		if err != nil {
			continue
		}
		if m.Pressure == nil {
			m.Pressure = make(map[string]heelerv1.Pressure, 7)
		}
		for _, line := range lines {
			m.Pressure[resource+"_"+line.degree] = line.Pressure
		}
	}
}

// threads goes on with the sweep and reports the last whole one.
func (c *Collector) threads(m *heelerv1.HostSample) {
	reads := c.SweepReads
	if c.sweep.last == nil {
		reads *= firstSweep
	}
	if err := c.sweep.run(reads); err != nil {
		m.Absent["threads_uninterruptible"] = hostfs.Reason(err)
		return
	}
	last := c.sweep.last
	if last == nil {
		m.Absent["threads_uninterruptible"] = "not_yet_counted"
		return
	}
	m.ThreadsUninterruptible, m.Uninterruptible = &last.threads, last.procs
}
