package dcgm

import (
	"maps"
	"sync"
	"time"
)

// whole stands for a GPU that is no MIG instance.
const whole = -1

// store averages the rows of each GPU, or MIG instance, until it is asked for them.
type store struct {
	every time.Duration

	mu  sync.Mutex
	all map[instance]*mean
}

// mean gathers the values of one entity.
type mean struct {
	sum    map[string]float64
	count  map[string]float64
	since  time.Time
	newest map[string]float64
	at     time.Time // of the newest row
	opened time.Time // of the first row that came with the newest
}

func newStore(every time.Duration) *store { return &store{every: every, all: map[instance]*mean{}} }

// add takes a row. Rows that come faster than they are measured waited somewhere: of such a burst only the last is as
// young as it looks, so it stands for all.
func (s *store) add(of instance, values map[string]float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.all[of]
	if m == nil {
		m = &mean{sum: map[string]float64{}, count: map[string]float64{}}
		s.all[of] = m
	}
	if m.newest != nil && now.Sub(m.opened) >= s.every/2 {
		m.fold()
	}
	if m.newest == nil {
		m.opened = now
	}
	m.newest, m.at = values, now
}

// fold counts the newest row.
func (m *mean) fold() {
	if len(m.sum) == 0 {
		m.since = m.opened
	}
	for name, v := range m.newest {
		m.sum[name] += v
		m.count[name]++
	}
	m.newest = nil
}

// longestMean bounds what one mean may stand for, should nobody ask for a while.
const longestMean = 2 * time.Minute

// take gives the means since the last time, and none at all when the newest row is older than two intervals: then the
// source is down, and what it said before is no longer true.
func (s *store) take(of instance, now time.Time) map[string]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.all[of]
	if m == nil || m.newest == nil && len(m.sum) == 0 {
		return nil
	}
	if now.Sub(m.at) > 2*s.every {
		delete(s.all, of)
		return nil
	}
	if m.newest != nil && len(m.sum) > 0 && now.Sub(m.since) > longestMean {
		clear(m.sum)
		clear(m.count)
	}
	m.fold()
	means := make(map[string]float64, len(m.sum))
	for name, sum := range m.sum {
		means[name] = sum / m.count[name]
	}
	clear(m.sum)
	clear(m.count)
	return means
}

// forget drops everything.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.all)
}

// plausible are the values of a row that can be true, by name, and how many could not.
func plausible(fields []field, cells []Cell) (values map[string]float64, rejected uint64) {
	values = make(map[string]float64, len(fields))
	for i, f := range fields {
		switch c := cells[i]; {
		case c.Kind == NotANumber, c.Kind == Number && (c.Value < 0 || c.Value > f.most):
			rejected++
		case c.Kind == Number:
			values[f.name] = c.Value
		}
	}
	return values, rejected
}

// reasons are why values of a row are missing, by name.
func reasons(fields []field, cells []Cell, into map[string]string) {
	for i, f := range fields {
		if k := cells[i].Kind; k != Number {
			into[f.name] = k.String()
		}
	}
}

// counters are what the status tells, beside what the frame counts.
type counters struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (c *counters) add(name string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[name] += n
}

// Counts implements [collector.Counter].
func (c *counters) Counts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}
