package gpu

import (
	"sync"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// Profiles is another source of the profiling columns, for GPUs without a performance monitor of their own.
type Profiles interface {
	// Window gives the means of a GPU, or of its MIG instance gi, since it was last asked, by column. It never gives
	// what is old.
	Window(uuid string, gi *int64) map[string]float64
}

// owner is who may profile a GPU: its counters serve one.
type owner int

const (
	nobody owner = iota
	monitor
	lent
)

// claims say who profiles which GPU. The zero value is ready, and nil lets the performance monitor have all.
type claims struct {
	mu sync.Mutex
	by map[string]owner
}

func (c *claims) take(uuid string, who owner) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[uuid] != nobody && c.by[uuid] != who {
		return false
	}
	if c.by == nil {
		c.by = map[string]owner{}
	}
	c.by[uuid] = who
	return true
}

func (c *claims) free(uuid string, who owner) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[uuid] == who {
		delete(c.by, uuid)
	}
}

// Unprofiled are the GPUs that answer and whose performance monitor isn't there or is switched off, not those where it
// is paused or refused.
func (c *Collector) Unprofiled() []string {
	off := nvml.Status(c.profiling.Load()) == nvml.Unread
	c.mu.Lock()
	defer c.mu.Unlock()
	var uuids []string
	for _, g := range c.gpus {
		if g.meter == nil {
			continue
		}
		switch s := nvml.Status(g.meter.perf.last.Load()); {
		case off, s == nvml.NotSupported, s == nvml.FunctionNotFound:
			uuids = append(uuids, g.identity.UUID)
		}
	}
	return uuids
}

// LendProfiling keeps the performance monitors of these GPUs closed until they are returned, and says which it could
// lend: not those whose monitor is at work.
func (c *Collector) LendProfiling(uuids []string) []string {
	var got []string
	for _, uuid := range uuids {
		if c.claims.take(uuid, lent) {
			got = append(got, uuid)
		}
	}
	return got
}

// ReturnProfiling ends that.
func (c *Collector) ReturnProfiling(uuids []string) {
	for _, uuid := range uuids {
		c.claims.free(uuid, lent)
	}
}

// fill puts values of another source where the sample has none. An instance that several rows share is left out: what
// one of them did is not known.
func fill(s *heelerv1.GpuSample, from Profiles) {
	if from == nil {
		return
	}
	for i, uuid := range s.GPU.UUID {
		gi, ok := instanceOf(s, i)
		if !ok {
			continue
		}
		if gi != nil {
			uuid = *s.GPU.Parent[i]
		}
		for name, v := range from.Window(uuid, gi) {
			if s.Mean[name] == nil {
				s.Mean[name] = make(heelerv1.Column, len(s.GPU.UUID))
			}
			if !s.Mean[name][i].Known() {
				s.Mean[name][i] = number(v)
			}
		}
	}
	for name, reason := range s.Absent {
		if column, ok := s.Mean[name]; ok && reason != "" && answered(s, column) {
			delete(s.Absent, name)
		}
	}
}

// instanceOf is the MIG instance of a row, nil for a whole GPU. It says no where the instance isn't the row's alone.
func instanceOf(s *heelerv1.GpuSample, i int) (*int64, bool) {
	if i >= len(s.GPU.Parent) || s.GPU.Parent[i] == nil {
		return nil, true
	}
	if i >= len(s.GPU.GI) || s.GPU.GI[i] == nil {
		return nil, false
	}
	for j := range s.GPU.GI {
		if j != i && s.GPU.GI[j] != nil && *s.GPU.GI[j] == *s.GPU.GI[i] && s.GPU.Parent[j] != nil &&
			*s.GPU.Parent[j] == *s.GPU.Parent[i] {
			return nil, false
		}
	}
	return s.GPU.GI[i], true
}

// answered tells whether a column has a value for each GPU that answers.
func answered(s *heelerv1.GpuSample, column heelerv1.Column) bool {
	for i, v := range column {
		if !v.Known() && s.State[i] != nil && *s.State[i] == heelerv1.GpuOK {
			return false
		}
	}
	return true
}
