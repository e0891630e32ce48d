package gpu

import (
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// slot is a place in the library's list of GPUs. Who stands there is asked under a guard of its own, so that one GPU
// that does not even say its name hides no other.
type slot struct {
	guard collector.Guard
	uuid  string // who stood there last; empty when that was never learned
}

// mostSlots bounds what a driver may say of the number of GPUs.
const mostSlots = 256

// slotPatience is the least that a place gets to answer when others have used the time up.
const slotPatience = 100 * time.Millisecond

// hangs tells whether a call about the place has been out for so long.
func (s *slot) hangs(least time.Duration) bool {
	if s == nil {
		return false
	}
	silent, stuck := s.guard.Stuck()
	return stuck && silent >= least
}

// nameless tells whether it was never learned who stands there.
func (s *slot) nameless() bool { return s.uuid == "" }

// slotAt is the place with this index.
func (c *Collector) slotAt(index int) *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.slots) <= index {
		c.slots = append(c.slots, &slot{})
	}
	return c.slots[index]
}

// slotOf is the place of a GPU, nil when it has none. It needs the lock.
func (c *Collector) slotOf(g *gpu) *slot {
	if g.identity.Index == nil || *g.identity.Index >= uint64(len(c.slots)) {
		return nil
	}
	return c.slots[*g.identity.Index]
}

// slotHangs tells whether a call about the GPU's place hangs, so that none may be made into the GPU.
func (c *Collector) slotHangs(g *gpu) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slotOf(g).hangs(0)
}

// found is a GPU that the library shows now.
type found struct {
	dev      nvml.Device // nil when the GPU was not asked since it hangs
	identity heelerv1.Gpu
	status   nvml.Status // why there is none
}

// listing is what the library shows.
type listing struct {
	gpus    []found
	refused nvml.Status // why a place could not be looked at
	late    bool        // a place has not answered
}

// look asks for each place who stands there. Those known to hang are not asked.
func (c *Collector) look(count int, patience time.Duration) listing {
	var l listing
	deadline := time.Now().Add(patience)
	known, hanging := c.known()
	for index := range min(count, mostSlots) {
		if identity, hangs := hanging[index]; hangs {
			l.gpus = append(l.gpus, found{identity: identity})
			continue
		}
		s := c.slotAt(index)
		f, err := collector.Guarded(&s.guard, max(time.Until(deadline), slotPatience), func() found {
			return whoIs(c.Library, index, known)
		})
		switch {
		case err != nil:
			l.late = true
		case f.status == nvml.OK:
			c.mu.Lock()
			s.uuid = f.identity.UUID
			c.mu.Unlock()
			l.gpus = append(l.gpus, f)
		case !gone(f.status):
			l.refused = f.status
		}
	}
	return l
}

// gone tells whether a status says that the GPU isn't there any more, as opposed to one that can't be had now.
func gone(s nvml.Status) bool {
	return s == nvml.Lost || s == nvml.NotFound || s == nvml.GPUNotFound || s == nvml.InvalidArgument
}

// known are the GPUs that need not be asked for what cannot change, and those that hang, by index.
func (c *Collector) known() (map[string]heelerv1.Gpu, map[int]heelerv1.Gpu) {
	known, hanging := map[string]heelerv1.Gpu{}, map[int]heelerv1.Gpu{}
	for _, g := range c.all() {
		_, stuck := g.guard.Stuck()
		c.mu.Lock()
		known[g.identity.UUID] = g.identity
		if stuck && g.identity.Index != nil {
			hanging[int(*g.identity.Index)] = g.identity
		}
		c.mu.Unlock()
	}
	return known, hanging
}

// whoIs asks one place. It runs under the guard of the place.
func whoIs(lib nvml.Library, index int, known map[string]heelerv1.Gpu) found {
	dev, s := lib.Device(index)
	if s != nvml.OK {
		return found{status: s} // lost GPUs may keep their index and refuse the handle
	}
	uuid, s := dev.UUID()
	if s == nvml.OK && uuid == "" {
		s = nvml.Blank
	}
	if s != nvml.OK {
		return found{status: s}
	}
	identity, ok := known[uuid]
	if !ok {
		identity = identify(dev, uuid)
	}
	identity.Index = heelerv1.Some(uint64(index))
	return found{dev: dev, identity: identity}
}
