package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// Release closes the performance monitors and the library, so that no handle and no device file stays open and a GPU
// can be reset or re-partitioned. Collect must not be called until that is over; the next one opens the library again.
// The error names the GPU whose call does not return: a driver that hangs cannot be let go.
func (c *Collector) Release(wait time.Duration) error {
	deadline := time.Now().Add(wait)
	if !c.takeTurn(deadline) {
		return errors.Join(c.hanging(), errors.New("a reading of the GPUs does not end"))
	}
	defer c.turn.Unlock()
	if c.opened {
		if err := c.letGo(time.Until(deadline)); err != nil {
			c.stale = true
			return err
		}
	}
	c.opened, c.openError, c.nextOpen = false, nil, time.Time{}
	c.windowEnd, c.reads = time.Time{}, 0 // what was read of this window goes with it
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	for _, g := range c.gpus {
		g.lost = false
		g.renew()
	}
	return nil
}

// turnPoll is how often it is tried whether a reading has ended.
const turnPoll = 5 * time.Millisecond

func (c *Collector) takeTurn(deadline time.Time) bool {
	for !c.turn.TryLock() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(turnPoll)
	}
	return true
}

// hanging names the GPUs, or the library, in which a call has not returned.
func (c *Collector) hanging() error { return c.hangingFor(0) }

// hangingFor names those that have been silent for so long.
func (c *Collector) hangingFor(least time.Duration) error {
	var errs []error
	for _, g := range c.all() {
		if silent, stuck := g.guard.Stuck(); stuck && silent >= least {
			call := "nothing"
			if m := c.meterOf(g); m != nil {
				call = m.call()
			}
			errs = append(errs, fmt.Errorf("%w: %s (%s) has been silent for %s in: %s", collector.ErrHung,
				g.identity.UUID, g.identity.PCI, silent.Round(time.Second), call))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for index, s := range c.slots {
		if silent, stuck := s.guard.Stuck(); stuck && silent >= least {
			errs = append(errs, fmt.Errorf("%w: the GPU at index %d (%s) has been silent for %s when asked who it is",
				collector.ErrHung, index, cmp.Or(s.uuid, "not known"), silent.Round(time.Second)))
		}
	}
	if silent, stuck := c.library.Stuck(); stuck && silent >= least {
		errs = append(errs, fmt.Errorf("%w: the GPU library has been silent for %s", collector.ErrHung,
			silent.Round(time.Second)))
	}
	return errors.Join(errs...)
}

// letGo closes what is open: the GPUs one by one, each under its guard, and then the library. Once a call hangs nothing
// is closed under its feet.
func (c *Collector) letGo(wait time.Duration) error {
	if err := c.hanging(); err != nil {
		return err
	}
	for _, g := range c.all() {
		_, err := collector.Guarded(&g.guard, wait, func() bool {
			if m := c.meterOf(g); m != nil {
				m.closeMonitors()
				c.dropMeter(g)
			}
			return true
		})
		if err != nil {
			return errors.Join(fmt.Errorf("%s (%s): closing it: %w", g.identity.UUID, g.identity.PCI, err), c.hanging())
		}
	}
	_, err := collector.Guarded(&c.library, wait, func() bool {
		c.Library.Shutdown()
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: closing the library: %w", collector.ErrHung, err)
	}
	return nil
}

func (c *Collector) meterOf(g *gpu) *meter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.meter
}

// dropMeter forgets a handle, which the library is about to make invalid.
func (c *Collector) dropMeter(g *gpu) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.meter = nil
}

func (c *Collector) setProfiling(on bool) {
	s := nvml.OK
	if !on {
		s = nvml.Unread
	}
	c.profiling.Store(int32(s))
}

// PauseProfiling closes the performance monitors and keeps them closed, so that a job can have them for itself. The
// error names GPUs whose driver does not answer; theirs stay open until it does.
func (c *Collector) PauseProfiling(wait time.Duration) error {
	c.profiling.Store(int32(nvml.Paused))
	var errs []error
	for _, g := range c.all() {
		_, err := collector.Guarded(&g.guard, wait, func() bool {
			if m := c.meterOf(g); m != nil {
				m.closeMonitors()
			}
			return true
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): closing its performance monitor: %w", g.identity.UUID,
				g.identity.PCI, err))
		}
	}
	return errors.Join(errs...)
}

// ResumeProfiling ends a pause.
func (c *Collector) ResumeProfiling() { c.setProfiling(c.profileOn()) }

func (c *Collector) profileOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings != nil {
		return c.settings.Profile
	}
	return c.Profile
}

// Profiling tells how the performance monitors are doing, and why not well.
func (c *Collector) Profiling() (heelerv1.CollectorState, string) {
	switch nvml.Status(c.profiling.Load()) {
	case nvml.OK:
	case nvml.Paused:
		return heelerv1.CollectorOff, "paused"
	default:
		return heelerv1.CollectorOff, "switched off"
	}
	state, why := heelerv1.CollectorAbsent, "no GPU has one that can be read"
	for _, g := range c.all() {
		m := c.meterOf(g)
		if m == nil {
			continue
		}
		switch s := nvml.Status(m.perf.last.Load()); s {
		case nvml.NotSupported, nvml.FunctionNotFound:
		case nvml.OK:
			if state == heelerv1.CollectorAbsent {
				state, why = heelerv1.CollectorOK, ""
			}
		default:
			state, why = heelerv1.CollectorFailing, s.String()
		}
	}
	return state, why
}

// Settings are the options that may change while the collector lives.
type Settings struct {
	Window, HangAfter, Patience, Retry time.Duration
	Profile                            bool
}

// Reconfigure hands over new settings, which the next Collect follows. A window that is open when their length changes
// is not published.
func (c *Collector) Reconfigure(s Settings) {
	c.mu.Lock()
	c.settings = &s
	c.mu.Unlock()
	if nvml.Status(c.profiling.Load()) != nvml.Paused {
		c.setProfiling(s.Profile)
	}
}

// adopt takes settings over.
func (c *Collector) adopt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.settings
	if s == nil {
		return
	}
	c.settings = nil
	if s.Window != c.Window {
		c.windowEnd, c.reads = time.Time{}, 0
		for _, g := range c.gpus {
			g.renew()
		}
	}
	c.Window, c.HangAfter, c.Patience, c.Retry, c.Profile = s.Window, s.HangAfter, s.Patience, s.Retry, s.Profile
}
