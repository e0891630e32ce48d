package gpu

import (
	"errors"
	"fmt"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

const openPatience = 10 * time.Second

// open opens the library unless it is open, and not more often than every Retry.
func (c *Collector) open() error {
	if c.opened {
		return nil
	}
	if c.openError != nil && time.Now().Before(c.nextOpen) {
		return c.openError
	}
	c.nextOpen = time.Now().Add(c.Retry)
	err, late := collector.Guarded(&c.library, c.OpenPatience, func() error { return c.Library.Init() })
	switch {
	case late != nil:
		c.openError = fmt.Errorf("%w: opening the library: %w", collector.ErrHung, late)
	case err != nil:
		c.openError = absentOr(err)
	default:
		c.opened, c.openError = true, nil
		c.mu.Lock()
		c.released = false
		c.mu.Unlock()
		c.openError = c.relist(c.OpenPatience)
		return c.openError
	}
	return c.openError
}

func absentOr(err error) error {
	var why *nvml.InitError
	if errors.As(err, &why) && why.Absent() {
		return fmt.Errorf("%w: %w", collector.ErrAbsent, err)
	}
	return err
}

// close gives the library up, unless a call into it hangs.
func (c *Collector) close() {
	c.opened = false
	c.nextOpen = time.Now()
	c.openError = errors.New("the driver went away")
	if err := c.letGo(c.OpenPatience); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reopened++
}

// relist asks which GPUs there are. A GPU that is no longer shown is lost and keeps its row; one that has another
// index gets its new handle.
func (c *Collector) relist(patience time.Duration) error {
	type counted struct {
		n      int
		status nvml.Status
	}
	got, err := collector.Guarded(&c.library, patience, func() counted {
		n, s := c.Library.Count()
		return counted{n, s}
	})
	if err != nil {
		return fmt.Errorf("%w: listing the GPUs: %w", collector.ErrHung, err)
	}
	if got.status != nvml.OK {
		return fmt.Errorf("listing the GPUs: %s", got.status)
	}
	if c.versions == (nvml.Versions{}) {
		c.versions, _ = collector.Guarded(&c.library, patience, c.Library.Versions)
	}
	shown := c.look(got.n, patience)
	if shown.late {
		c.stale = true // and look again with the next tick
	}
	changed, left := c.merge(shown)
	for _, one := range left {
		_, _ = collector.Guarded(one.guard, patience, func() bool { one.meter.closeMonitors(); return true })
	}
	if changed || !c.everSeen {
		c.everSeen = true
		c.tell()
	}
	return nil
}

// leaver is a meter that nobody reads any more, with the guard of its GPU.
type leaver struct {
	guard *collector.Guard
	meter *meter
}

// merge brings the rows up to date and tells whether any identity changed, and which meters are to be closed.
func (c *Collector) merge(now listing) (changed bool, left []leaver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = now.refused
	shown := map[string]*found{}
	for i := range now.gpus {
		shown[now.gpus[i].identity.UUID] = &now.gpus[i]
	}
	for _, g := range c.gpus {
		f, ok := shown[g.identity.UUID]
		delete(shown, g.identity.UUID)
		before := g.meter
		if ok {
			changed = c.refresh(g, f) || changed
			if before != nil && g.meter != before {
				left = append(left, leaver{&g.guard, before})
			}
			continue
		}
		if _, stuck := g.guard.Stuck(); stuck || c.slotOf(g).hangs(0) {
			continue // it may still be there
		}
		if before != nil {
			changed, left = true, append(left, leaver{&g.guard, before})
		}
		g.meter, g.identity.Index, g.lost = nil, nil, true
	}
	for i := range now.gpus {
		f := &now.gpus[i]
		if _, isNew := shown[f.identity.UUID]; isNew && f.dev != nil {
			c.gpus = append(c.gpus, c.newGPU(f))
			changed = true
		}
	}
	return changed, left
}

func (c *Collector) newGPU(f *found) *gpu {
	return &gpu{
		identity: f.identity, window: newWindow(), parts: partsOf(&f.identity), meter: c.newMeter(f.dev, &f.identity, ""),
	}
}

// refresh gives a known GPU its new handle if its place changed. A meter that hangs is left as it is.
func (c *Collector) refresh(g *gpu, f *found) bool {
	if f.dev == nil {
		return false
	}
	same := g.meter != nil && g.identity.Index != nil && *g.identity.Index == *f.identity.Index
	if same {
		return false
	}
	g.identity.Index = f.identity.Index
	if _, stuck := g.guard.Stuck(); stuck {
		return true
	}
	g.meter, g.lost = c.newMeter(f.dev, &g.identity, g.powerKind), false
	return true
}

// tell passes the GPUs on and remembers them.
func (c *Collector) tell() {
	var gpus []heelerv1.Gpu
	c.mu.Lock()
	for _, g := range c.gpus {
		gpus = append(gpus, g.identity)
	}
	c.mu.Unlock()
	if err := c.memory.save(gpus); err != nil {
		c.Log.Warn("cannot remember the GPUs", "error", err)
	}
	if c.OnInventory != nil {
		c.OnInventory(gpus, c.versions)
	}
}

// ByPCI is the UUID of the GPU at a PCI address, or empty.
func (c *Collector) ByPCI(address string) string {
	g := c.at(address)
	if g == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.identity.UUID
}

func (c *Collector) at(address string) *gpu {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gpus {
		if g.identity.PCI == address && address != "" {
			return g
		}
	}
	return nil
}

// Recheck reads one GPU at once and says whether it answers. It takes no longer than wait.
func (c *Collector) Recheck(address string, wait time.Duration) heelerv1.GpuState {
	g := c.at(address)
	if g == nil {
		return heelerv1.GpuUnknown
	}
	if c.slotHangs(g) {
		return heelerv1.GpuHung
	}
	state, err := collector.Guarded(&g.guard, wait/2, func() heelerv1.GpuState {
		m := c.meterOf(g) // asked under the guard: the library is not closed as long as we hold it
		if m == nil {
			return c.state(g)
		}
		return m.probe()
	})
	if err != nil {
		return heelerv1.GpuHung
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return heelerv1.GpuUnknown
	}
	if state != heelerv1.GpuUnknown {
		g.lost = state == heelerv1.GpuLost
	}
	return state
}
