// Package gpu reads the GPUs of the node through NVML and makes a GpuSample of each window.
//
// Every call into the driver may hang for ever. Each GPU is read under a guard of its own: one that does not answer is
// left alone, marked hung, and not called again until it returns, while the others are read on. A GPU keeps its row, by
// UUID, when it is lost. A MIG device is a row of its own as long as it exists, and is read under the guard of its GPU.
// What a GPU has shown it lacks is asked for again only now and then.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
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
	// OpenPatience is how long opening or listing may take; zero means 10 s. Without persistence mode the driver wakes the
	// GPUs first.
	OpenPatience time.Duration
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
	slots    []*slot     // the places in the library's list
	refused  nvml.Status // why a place could not be looked at
	rejected uint64
	unlisted uint64 // processes
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
	badSince  time.Time       // no GPU has answered well since
	forbidden map[column]bool // said once
}

// gpu is one GPU that this boot has had.
type gpu struct {
	guard     collector.Guard
	identity  heelerv1.Gpu
	meter     *meter // nil while the GPU isn't in the library's list
	window    *window
	parts     []*part
	powerKind string
	lost      bool
	odd       nvml.Status // what the last visit ended with, when neither well nor lost
}

// part is one MIG device of a GPU.
type part struct {
	identity heelerv1.MIGDevice
	window   *window
}

func partsOf(g *heelerv1.Gpu) []*part {
	var parts []*part
	for _, device := range g.MIGDevices {
		parts = append(parts, &part{device, newWindow()})
	}
	return parts
}

// New returns a collector.
func New(o Options) *Collector {
	c := &Collector{Options: o, memory: memory{o.MemoryPath, o.Boot}, forbidden: map[column]bool{}}
	c.setProfiling(o.Profile)
	if c.OpenPatience == 0 {
		c.OpenPatience = openPatience
	}
	for _, identity := range c.memory.load() {
		identity.Index = nil
		c.gpus = append(c.gpus, &gpu{identity: identity, window: newWindow(), parts: partsOf(&identity), lost: true})
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
	round := c.visitAll(visit{end, c.windowEnd, c.Window})
	c.reads++
	if round.changed {
		c.tell()
	}
	if end {
		errs = append(errs, c.publish(emit))
	}
	relist := round.moved || end || c.stale // look for new and missing GPUs once a window
	c.stale = false
	if c.isBroken(round, tick) {
		c.close()
		return errors.Join(append(errs, errors.New("the driver stopped answering; the library is opened again"))...)
	}
	if relist {
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
	c.newWindows()
	return err
}

func (c *Collector) newWindows() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gpus {
		g.renew()
	}
}

// renew begins a window.
func (g *gpu) renew() {
	g.window = newWindow()
	for _, p := range g.parts {
		p.window = newWindow()
	}
}

func (c *Collector) all() []*gpu {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*gpu(nil), c.gpus...)
}

// round is what came of a visit to all GPUs.
type round struct {
	asked, gone, bad int
	moved            bool // the handles no longer fit the GPUs
	changed          bool // what the inventory says
}

// visitAll reads the GPUs one after the other.
func (c *Collector) visitAll(v visit) round {
	var all round
	for _, g := range c.all() {
		m := c.meterOf(g)
		if m == nil || c.slotHangs(g) {
			continue
		}
		all.asked++
		r, err := collector.Guarded(&g.guard, c.Patience, func() *reading { return m.visit(v) })
		if err != nil || r == nil {
			continue // the guard knows; state tells
		}
		all.changed = c.note(g, r) || all.changed
		all.moved = all.moved || r.moved
		if driverIsGone(r.gone) {
			all.gone++
		}
		if r.verdict() != nvml.OK {
			all.bad++
		}
	}
	return all
}

// isBroken tells whether the library must be opened again: at once when all GPUs say that the driver is gone, and now
// and then while none of them answers well.
func (c *Collector) isBroken(r round, tick time.Time) bool {
	if r.asked > 0 && r.gone == r.asked {
		return true
	}
	if r.bad < r.asked || len(c.all()) == 0 {
		c.badSince = time.Time{}
		return false
	}
	if c.badSince.IsZero() {
		c.badSince = tick
	}
	return tick.Sub(c.badSince) >= max(c.Retry, c.Window)
}

// note takes a reading, and tells whether the GPU is not what it was.
func (c *Collector) note(g *gpu, r *reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejected += r.rejected
	c.unlisted += r.procs.dropped
	c.sayForbidden(g, r)
	verdict := r.verdict()
	g.lost, g.odd = verdict == nvml.Lost, nvml.OK
	if !g.lost {
		g.odd = verdict
	}
	g.window.add(&r.values, &r.procs)
	if r.links != nil {
		g.window.links = r.links
	}
	if r.powerKind != "" {
		g.powerKind = r.powerKind
	}
	c.noteParts(g, r)
	return c.noteIdentity(g, r)
}

// noteParts takes the readings of the MIG devices. One that is no longer there has no row any more: it was taken away,
// not lost.
func (c *Collector) noteParts(g *gpu, r *reading) {
	var listed []*part
	for i := range r.parts {
		got := &r.parts[i]
		p := partOf(g.parts, got.device.UUID)
		if p == nil && !r.partsListed {
			continue
		}
		if p == nil {
			p = &part{got.device, newWindow()}
		}
		p.note(c, got)
		listed = append(listed, p)
	}
	if r.partsListed {
		g.parts = listed
	}
}

func (p *part) note(c *Collector, r *partReading) {
	c.rejected += r.procs.rejected
	c.unlisted += r.procs.dropped
	p.window.add(&r.values, &r.procs)
}

func partOf(parts []*part, uuid string) *part {
	for _, p := range parts {
		if p.identity.UUID == uuid {
			return p
		}
	}
	return nil
}

// noteIdentity keeps the inventory true, and tells whether it changed.
func (c *Collector) noteIdentity(g *gpu, r *reading) bool {
	changed := false
	if mode := r.values[migMode]; mode.status == nvml.OK {
		on := mode.value == flag(true)
		changed = g.identity.MIG == nil || *g.identity.MIG != on
		g.identity.MIG = &on
	}
	if r.ends != nil && !reflect.DeepEqual(g.identity.NVLinks, r.ends) {
		g.identity.NVLinks, changed = r.ends, true
	}
	if !r.partsListed {
		return changed
	}
	var devices []heelerv1.MIGDevice
	for _, p := range g.parts {
		devices = append(devices, p.identity)
	}
	if !reflect.DeepEqual(g.identity.MIGDevices, devices) {
		g.identity.MIGDevices, changed = devices, true
	}
	return changed
}

// sayForbidden says once for each column that we may not read it.
func (c *Collector) sayForbidden(g *gpu, r *reading) {
	for i := range r.values {
		if col := column(i); r.values[i].status == nvml.NoPermission && !c.forbidden[col] {
			c.forbidden[col] = true
			c.Log.Warn("no permission to read a column", "column", names[col], "gpu", g.identity.UUID)
		}
	}
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
	case g.meter == nil:
		return c.unseen()
	case c.slotOf(g).hangs(c.HangAfter):
		return heelerv1.GpuHung
	case g.lost:
		return heelerv1.GpuLost
	case g.odd != nvml.OK:
		return heelerv1.GpuUnknown
	default:
		return heelerv1.GpuOK
	}
}

// unseen is the state of a GPU that the library does not show. It is lost, unless it may be what stands at a place that
// could not be looked at.
func (c *Collector) unseen() heelerv1.GpuState {
	missing, hung, silent := 0, 0, 0
	for _, g := range c.gpus {
		if g.meter == nil {
			missing++
		}
	}
	for _, s := range c.slots {
		if s.hangs(0) {
			silent++
		}
		if s.hangs(c.HangAfter) {
			hung++
		}
	}
	switch {
	case hung >= missing:
		return heelerv1.GpuHung
	case silent > 0 || c.refused != nvml.OK:
		return heelerv1.GpuUnknown
	default:
		return heelerv1.GpuLost
	}
}

func (c *Collector) publish(emit collector.Emit) error {
	var rows []row
	for _, g := range c.all() {
		state := c.state(g)
		c.mu.Lock()
		rows = append(rows, rowsOf(g, state)...)
		c.mu.Unlock()
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

// complain says which GPUs do not answer, or not well.
func (c *Collector) complain() error {
	errs := []error{c.hangingFor(c.HangAfter)}
	all := c.all()
	for _, g := range all {
		switch c.state(g) {
		case heelerv1.GpuLost:
			errs = append(errs, fmt.Errorf("lost: %s (%s)", g.identity.UUID, g.identity.PCI))
		case heelerv1.GpuUnknown:
			c.mu.Lock()
			why := cmp.Or(g.odd, c.refused)
			c.mu.Unlock()
			if why != nvml.OK {
				errs = append(errs, fmt.Errorf("%s (%s) answers: %s", g.identity.UUID, g.identity.PCI, why))
			}
		}
	}
	if err := errors.Join(errs...); err != nil || len(all) > 0 {
		return err
	}
	return fmt.Errorf("%w: the driver shows no GPU", collector.ErrAbsent)
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
	for _, s := range c.slots {
		if s.nameless() && s.hangs(c.HangAfter) {
			hung++
		}
	}
	return map[string]uint64{
		"rejected": c.rejected, "reopened": c.reopened, "hung": hung, "lost": lost, "unlisted_processes": c.unlisted,
	}
}
