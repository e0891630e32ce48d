package dcgm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

// Switches reads the node's NVSwitches and their links. It implements [collector.Source].
type Switches struct {
	tool  *Tool
	every time.Duration
	counters

	look time.Time // when to look again for switches; only Run touches it

	mu     sync.Mutex
	rows   map[switchLink]switchRow
	absent map[string]string
}

// switchRow is what was last read of a switch, or of a link.
type switchRow struct {
	values map[string]float64
	at     time.Time
	sent   bool
}

// noLink is the link number of a switch itself.
const noLink = 1 << 32

// lookAgain is how often a node without switches is asked whether it has some: it costs a process.
const lookAgain = 10 * time.Minute

// NewSwitches returns a source that makes a sample every so often.
func NewSwitches(tool *Tool, every time.Duration) *Switches {
	return &Switches{tool: tool, every: every}
}

// Run implements [collector.Source].
func (s *Switches) Run(ctx context.Context, beat func(), emit collector.Emit) error {
	if time.Now().Before(s.look) {
		return fmt.Errorf("%w: DCGM shows no NVSwitch", collector.ErrAbsent)
	}
	node, err := s.tool.discover(ctx)
	if err != nil {
		return err
	}
	if len(node.switches) == 0 {
		s.look = time.Now().Add(lookAgain)
		return fmt.Errorf("%w: DCGM shows no NVSwitch", collector.ErrAbsent)
	}
	s.mu.Lock()
	s.rows, s.absent = map[switchLink]switchRow{}, map[string]string{}
	s.mu.Unlock()
	var links sync.WaitGroup
	defer links.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	links.Add(1)
	go func() {
		defer links.Done()
		if err := s.followLinks(ctx); err != nil && ctx.Err() == nil {
			s.miss("links", err.Error())
		}
	}()
	var entities []string
	for _, id := range node.switches {
		entities = append(entities, "nvswitch:"+strconv.FormatUint(id, 10))
	}
	due := time.Now().Truncate(s.every).Add(s.every)
	err = s.tool.follow(ctx, watch{
		fields: switchFields, entities: entities, every: s.every, beat: beat,
		row: func(r Row, now time.Time) error {
			if r.Entity.Group == groupSwitch && !r.Entity.HasLink {
				s.keep(switchLink{r.Entity.ID, noLink}, switchFields, r.Cells, now)
			}
			return nil
		},
		tick: func(now time.Time) error {
			if now.Before(due) {
				return nil
			}
			due = now.Truncate(s.every).Add(s.every)
			return s.publish(now, emit)
		},
	}, &s.counters)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// followLinks reads the links. Older versions of dcgmi can't, and then the switches are read without.
func (s *Switches) followLinks(ctx context.Context) error {
	text, err := s.tool.query(ctx, "nvlink", "-s")
	if err != nil {
		return err
	}
	links := parseLinks(text)
	if len(links) == 0 {
		return fmt.Errorf("dcgmi shows none")
	}
	known, entities := map[uint64]switchLink{}, make([]string, len(links))
	for i, l := range links {
		known[l.raw()] = l
		entities[i] = "link:" + strconv.FormatUint(l.raw(), 10)
	}
	return s.tool.follow(ctx, watch{
		fields: linkFields, entities: entities, every: s.every,
		row: func(r Row, now time.Time) error {
			l, ok := known[r.Entity.ID]
			switch {
			case r.Entity.Group == groupSwitch && r.Entity.HasLink:
				l, ok = switchLink{r.Entity.ID, r.Entity.Link}, true
			case r.Entity.Group != groupLink:
				return nil
			}
			if !ok {
				s.add("malformed", 1)
				return nil
			}
			s.keep(l, linkFields, r.Cells, now)
			return nil
		},
	}, &s.counters)
}

func (s *Switches) miss(what, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent[what] = why
}

func (s *Switches) keep(of switchLink, fields []field, cells []Cell, now time.Time) {
	values, rejected := plausible(fields, cells)
	s.add("rejected", rejected)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[of] = switchRow{values: values, at: now}
	if of.Link == noLink {
		reasons(fields, cells, s.absent)
	}
	for name := range values {
		if of.Link == noLink {
			delete(s.absent, name)
		}
	}
}

// publish sends what has been read since the last sample. A sample without anything new is not sent.
func (s *Switches) publish(now time.Time, emit collector.Emit) error {
	m := &heelerv1.SwitchSample{WindowNS: heelerv1.Some(uint64(s.every)), Switches: []heelerv1.NVSwitch{}}
	m.TS = now.UnixNano()
	s.mu.Lock()
	keys := slices.SortedFunc(maps.Keys(s.rows), func(a, b switchLink) int {
		if a.Switch != b.Switch {
			return int(a.Switch) - int(b.Switch)
		}
		return int(a.Link) - int(b.Link)
	})
	for _, key := range keys {
		r := s.rows[key]
		if r.sent || now.Sub(r.at) > 2*s.every {
			delete(s.rows, key)
			continue
		}
		r.sent = true
		s.rows[key] = r
		switch {
		case key.Link == noLink:
			m.Switches = append(m.Switches, heelerv1.NVSwitch{
				Switch: key.Switch, PCI: address(r.values), Values: numbers(r.values),
			})
		case notable(r.values):
			m.Links = append(m.Links, heelerv1.NVSwitchLink{
				Switch: key.Switch, Link: key.Link, Values: numbers(r.values),
			})
		}
	}
	m.Absent = maps.Clone(s.absent)
	s.mu.Unlock()
	if len(m.Switches) == 0 && len(m.Links) == 0 {
		return nil
	}
	return emit(m)
}

// notable tells whether a link is worth a row: it is not active, or has counted an error. A fabric has hundreds.
func notable(values map[string]float64) bool {
	const active = 2
	if status, ok := values[linkStatus]; !ok || status != active {
		return true
	}
	for name, v := range values {
		if strings.HasSuffix(name, "_errors") && v > 0 {
			return true
		}
	}
	return false
}

// address is the switch's, where DCGM says all of it.
func address(values map[string]float64) string {
	domain, a := values[pciDomain]
	bus, b := values[pciBus]
	device, c := values[pciDevice]
	if !a || !b || !c {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x", int(domain), int(bus), int(device))
}

// numbers are values for the bus, without what went into the address.
func numbers(values map[string]float64) map[string]heelerv1.Value {
	all := make(map[string]heelerv1.Value, len(values))
	for name, v := range values {
		switch name {
		case pciDomain, pciBus, pciDevice:
		default:
			if v == math.Trunc(v) && v < 1<<53 { // shorter on the wire
				all[name] = heelerv1.UintValue(uint64(v))
			} else {
				all[name] = heelerv1.FloatValue(v)
			}
		}
	}
	return all
}
