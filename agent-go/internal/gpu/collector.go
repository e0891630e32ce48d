// Package gpu reads the GPUs of the node through NVML and makes a GpuSample of each window.
//
// Every call into the driver may hang for ever. Each GPU is read under a guard of its own: one that does not answer is
// left alone, marked hung, and not called again until it returns, while the others are read on. A GPU keeps its row, by
// UUID, when it is lost.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// Options say how to read.
type Options struct {
	Library nvml.Library
	// Window is the length of a window, a multiple of the ticks.
	Window time.Duration
	// HangAfter is how long a GPU may be silent before it is called hung.
	HangAfter time.Duration
	// Patience is how long a tick waits for one GPU.
	Patience time.Duration
	// Retry is the time between attempts to open the library.
	Retry time.Duration
	// Profile switches the performance monitor on.
	Profile bool
	// JobOf finds the job of a process; PIDMax is the highest process id there can be.
	JobOf  func(pid uint64) (string, bool)
	PIDMax uint64
	// MemoryPath is where the GPUs of this boot are remembered; empty for nowhere.
	MemoryPath string
	Boot       string
	// Profiles is asked for the profiling columns of GPUs that have no performance monitor; nil for none.
	Profiles Profiles
	// OnInventory hears of the GPUs whenever they change.
	OnInventory func(gpus []heelerv1.Gpu, versions nvml.Versions)
	Log         *slog.Logger
}

// Collector implements [collector.Collector].
type Collector struct {
	Options
	library collector.Guard
	memory  memory

	profiling atomic.Int32 // nvml.OK, or the status that stands for "not now"
	claims    claims       // who profiles which GPU

	mu       sync.Mutex // guards what follows
	gpus     []*gpu
	rejected uint64
	reopened uint64
	released bool
	settings *Settings // to be taken over by the next Collect

	// Only who holds the turn touches these: Collect, or Release.
	turn      sync.Mutex
	opened    bool
	stale     bool // some handles were dropped: the GPUs must be listed again
	openError error
	nextOpen  time.Time
	windowEnd time.Time
	reads     uint64
	versions  nvml.Versions
	everSeen  bool
}

// gpu is one GPU that this boot has had.
type gpu struct {
	guard    collector.Guard
	identity heelerv1.Gpu
	meter    *meter // nil while the GPU isn't in the library's list
	window   *window
	lost     bool
	odd      nvml.Status // what the last visit ended with, when neither well nor lost
}

// New returns a collector.
func New(o Options) *Collector {
	c := &Collector{Options: o, memory: memory{o.MemoryPath, o.Boot}}
	c.setProfiling(o.Profile)
	for _, identity := range c.memory.load() {
		identity.Index = nil
		c.gpus = append(c.gpus, &gpu{identity: identity, window: newWindow(), lost: true})
	}
	return c
}

// Collect implements [collector.Collector].
func (c *Collector) Collect(_ context.Context, tick time.Time, emit collector.Emit) error {
	if !c.turn.TryLock() {
		return fmt.Errorf("%w: the reading before has not ended", collector.ErrHung)
	}
	defer c.turn.Unlock()
	c.adopt()
	if err := c.open(); err != nil {
		return err
	}
	var errs []error
	if err := c.startWindow(tick, emit); err != nil {
		errs = append(errs, err)
	}
	end := !tick.Before(c.windowEnd)
	moved, broken := c.visitAll(end)
	c.reads++
	if end {
		errs = append(errs, c.publish(emit))
	}
	if end || c.stale { // look for new and missing GPUs once a window
		moved, c.stale = true, false
	}
	if broken {
		c.close()
		return errors.Join(append(errs, errors.New("the driver stopped answering; the library is opened again"))...)
	}
	if moved {
		errs = append(errs, c.relist(c.Patience))
	}
	return errors.Join(append(errs, c.complain())...)
}

// startWindow makes sure that tick belongs to the open window. Windows end at multiples of their length by the wall
// clock, and the tick at the end is the last of its window. A window whose last tick was missed is published late, with
// what was read of it.
func (c *Collector) startWindow(tick time.Time, emit collector.Emit) error {
	n := tick.UnixNano()
	end := n - n%int64(c.Window)
	if end < n {
		end += int64(c.Window)
	}
	if c.windowEnd.UnixNano() == end {
		return nil
	}
	var err error
	if c.reads > 0 {
		err = c.publish(emit)
	}
	c.windowEnd, c.reads = time.Unix(0, end), 0
	for _, g := range c.all() {
		g.window = newWindow()
	}
	return err
}

func (c *Collector) all() []*gpu {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*gpu(nil), c.gpus...)
}

// visitAll reads the GPUs one after the other. moved says that the handles no longer fit the GPUs, broken that no GPU
// answers since the driver went away.
func (c *Collector) visitAll(endOfWindow bool) (moved, broken bool) {
	asked, failed := 0, 0
	for _, g := range c.all() {
		m := g.meter
		if m == nil {
			continue
		}
		asked++
		r, err := collector.Guarded(&g.guard, c.Patience, func() reading { return m.visit(endOfWindow) })
		if err != nil {
			continue // the guard knows; state tells
		}
		c.note(g, &r)
		moved = moved || r.moved
		if driverGone(&r) {
			failed++
		}
	}
	return moved, asked > 0 && failed == asked
}

// driverGone tells whether a reading failed as all do when the driver was unloaded.
func driverGone(r *reading) bool {
	s := r.values[powerW].status
	return s == nvml.Uninitialized || s == nvml.DriverNotLoaded || s == nvml.LibRMVersionMismatch
}

func (c *Collector) note(g *gpu, r *reading) {
	for i := range r.procs {
		if p := &r.procs[i]; p.PID == 0 || p.PID > c.PIDMax {
			r.rejected++
			p.PID = 0
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejected += r.rejected
	g.lost, g.odd = r.gone == nvml.Lost, nvml.OK
	if r.gone != nvml.OK && !g.lost {
		g.odd = r.gone
	}
	g.window.add(r)
	g.window.procs = realProcesses(g.window.procs)
}

func realProcesses(procs []nvml.Process) []nvml.Process {
	kept := procs[:0]
	for _, p := range procs {
		if p.PID != 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// state is whether the GPU answers.
func (c *Collector) state(g *gpu) heelerv1.GpuState {
	silent, stuck := g.guard.Stuck()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case stuck && silent >= c.HangAfter:
		return heelerv1.GpuHung
	case c.released:
		return heelerv1.GpuUnknown
	case g.lost || g.meter == nil:
		return heelerv1.GpuLost
	case g.odd != nvml.OK:
		return heelerv1.GpuUnknown
	default:
		return heelerv1.GpuOK
	}
}

func (c *Collector) publish(emit collector.Emit) error {
	var rows []row
	for _, g := range c.all() {
		rows = append(rows, row{g.identity, c.state(g), g.window})
	}
	reads := c.reads
	c.reads = 0
	if len(rows) == 0 {
		return nil
	}
	s := build(rows, c.windowEnd, c.Window, reads, c.JobOf)
	fill(s, c.Profiles)
	return emit(s)
}

// complain says which GPUs do not answer.
func (c *Collector) complain() error {
	var errs []error
	all := c.all()
	for _, g := range all {
		switch c.state(g) {
		case heelerv1.GpuHung:
			silent, _ := g.guard.Stuck()
			errs = append(errs, fmt.Errorf("%w: %s (%s) has been silent for %s in: %s", collector.ErrHung,
				g.identity.UUID, g.identity.PCI, silent.Round(time.Second), g.meter.call()))
		case heelerv1.GpuLost:
			errs = append(errs, fmt.Errorf("lost: %s (%s)", g.identity.UUID, g.identity.PCI))
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: the driver shows no GPU", collector.ErrAbsent)
	}
	return errors.Join(errs...)
}

// Counts implements [collector.Counter].
func (c *Collector) Counts() map[string]uint64 {
	var hung, lost uint64
	for _, g := range c.all() {
		switch c.state(g) {
		case heelerv1.GpuHung:
			hung++
		case heelerv1.GpuLost:
			lost++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]uint64{"rejected": c.rejected, "reopened": c.reopened, "hung": hung, "lost": lost}
}
