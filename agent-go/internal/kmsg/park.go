package kmsg

import (
	"strings"
	"time"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

const (
	// recheckTime is how long reading a GPU again may take. The log is read on meanwhile.
	recheckTime = 500 * time.Millisecond
	// witnessTime is how long an XID waits for NVML's word on it. The driver writes the line first and tells NVML at
	// once; whoever comes later is not waited for, but counted.
	witnessTime = 2 * time.Millisecond
	// checkTime is how often it is looked whether a GPU that is read again has answered.
	checkTime  = time.Millisecond
	mostParked = 64
)

// parked is an event that waits for what others say: a fresh reading of its GPU, or NVML's own report.
type parked struct {
	event *event
	check *reading // nil for none
	until time.Time
}

// reading is a reading of a GPU that is on its way.
type reading struct {
	done  chan struct{}
	state heelerv1.GpuState
}

func (c *reading) ready() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// XIDs after which the GPU may be gone, or may not answer any more.
const (
	xidFallenOff    = 79
	xidGSPTimeout   = 119
	xidGSPError     = 120
	xidInitFailure  = 143
	xidFatalTimeout = 158
	xidPCIeTimeout  = 167
)

// Recovery actions for which the driver gave the GPU up.
const (
	actionReset         = 1
	actionReboot        = 2
	actionDrainAndReset = 4
)

// endangers tells whether a line says that its GPU may not answer any more. Reading it at once gives a second witness,
// and tells lost from hung.
func endangers(f *Fact) bool {
	if f.Kind == heelerv1.KindGpuLost {
		return true
	}
	if f.Kind != heelerv1.KindXid || f.Code == nil {
		return false
	}
	switch *f.Code {
	case xidFallenOff, xidGSPTimeout, xidGSPError, xidInitFailure, xidFatalTimeout, xidPCIeTimeout:
		return true
	case xidRecoveryAction:
		to, _ := f.Detail["to"].(uint64)
		return to == actionReset || to == actionReboot || to == actionDrainAndReset
	}
	return false
}

// expect tells the book of witnesses of an XID.
func (r *run) expect(e *event) {
	if r.Witnesses == nil || e.fact.Kind != heelerv1.KindXid || e.fact.PCI == "" {
		return
	}
	now := time.Now()
	written := e.at
	if !e.live {
		ts, _ := timeOf(e)
		written = time.Unix(0, ts)
	}
	e.line = r.Witnesses.Line(witness.Fault{PCI: e.fact.PCI, Code: *e.fact.Code}, written, now)
}

// park keeps an event back for a moment if others have a word on it, and tells whether it did.
func (r *run) park(e *event) bool {
	if !e.live || e.fact.PCI == "" || len(r.parked) >= mostParked {
		return false
	}
	p := &parked{event: e}
	if r.GPUs != nil && endangers(&e.fact) {
		p.check = r.recheck(e.fact.PCI)
	}
	if e.line != nil && !e.line.Peek() && r.Witnesses.Watched(e.fact.PCI) {
		p.until = e.at.Add(witnessTime)
	}
	if p.check == nil && p.until.IsZero() {
		return false
	}
	r.parked = append(r.parked, p)
	return true
}

// parkedFor is how long the parked events can be left alone.
func (r *run) parkedFor(now time.Time) time.Duration {
	long := foldTime
	for _, p := range r.parked {
		left := checkTime
		if p.check == nil {
			left = max(p.until.Sub(now), 0)
		}
		long = min(long, left)
	}
	return long
}

// recheck begins to read a GPU, unless that is under way.
func (r *run) recheck(address string) *reading {
	if c, ok := r.checks[address]; ok && !c.ready() {
		return c
	}
	c := &reading{done: make(chan struct{})}
	r.checks[address] = c
	go func() {
		defer close(c.done)
		c.state = r.GPUs.Recheck(address, recheckTime)
	}()
	return c
}

// unpark sends the events for which everything was said, and those that waited long enough.
func (r *run) unpark(now time.Time) error {
	kept := r.parked[:0]
	var err error
	for _, p := range r.parked {
		if err != nil || !p.settled(now) {
			kept = append(kept, p)
			continue
		}
		if p.check != nil {
			p.event.state = p.check.state
		}
		err = r.send(p.event)
	}
	clear(r.parked[len(kept):])
	r.parked = kept
	return err
}

func (p *parked) settled(now time.Time) bool {
	if p.check != nil && !p.check.ready() {
		return false
	}
	return p.until.IsZero() || !now.Before(p.until) || p.event.line.Peek()
}

// unparkAll sends what is parked as it is.
func (r *run) unparkAll() error {
	for len(r.parked) > 0 {
		p := r.parked[0]
		if p.check != nil && p.check.ready() {
			p.event.state = p.check.state
		}
		if err := r.send(p.event); err != nil {
			return err
		}
		r.parked = r.parked[1:]
	}
	return nil
}

// shrink lets go of the rest of a long record, of which only the beginning is kept.
func (e *event) shrink() {
	if len(e.rec.Raw) <= longestRaw && len(e.rec.More) == 0 {
		return
	}
	e.rec.Raw = strings.Clone(cut(clean(e.rec.Raw)))
	e.rec.Text, e.rec.More = "", nil
	e.fact.Text = strings.Clone(cut(e.fact.Text))
}

// timeOf is when the line was written. The kernel's stamps drift away from the time of day, so a line that is read as
// it comes gets the time of the reading; one of a backlog is dated back, and never into the future.
func timeOf(e *event) (int64, *bool) {
	ts := e.at.UnixNano()
	if e.live {
		return ts, heelerv1.Some(false)
	}
	if now, err := hostfs.Monotonic(); err == nil {
		if ago := now - time.Duration(e.rec.MonoUS)*time.Microsecond; ago > 0 && ago < now {
			ts -= ago.Nanoseconds()
		}
	}
	return ts, heelerv1.Some(true)
}
