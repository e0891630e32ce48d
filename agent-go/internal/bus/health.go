package bus

import (
	"fmt"
	"slices"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// Refused is how many messages the bus could never take.
func (p *Publisher) Refused() uint64 { return p.refused.Load() }

// Health is how the connection and the spool are doing, in the words of a collector.
func (p *Publisher) Health() map[string]heelerv1.CollectorStatus {
	return map[string]heelerv1.CollectorStatus{"bus": p.busHealth(), "spool": p.spoolHealth()}
}

func (p *Publisher) busHealth() heelerv1.CollectorStatus {
	s := heelerv1.CollectorStatus{State: heelerv1.CollectorOK}
	total, held := p.nc.denied.count()
	p.mu.Lock()
	why := p.why
	p.mu.Unlock()
	switch {
	case len(held) > 0:
		slices.Sort(held)
		why = fmt.Sprintf("may not publish to %s", strings.Join(held, ", "))
	case !p.nc.IsConnected():
		why = "not connected"
	}
	if why != "" {
		s.State, s.Why = heelerv1.CollectorFailing, why
	}
	if at := p.reached.Load(); at > 0 {
		s.LastSuccessTS = &at
	}
	s.Counts = map[string]uint64{"denied": total, "too_large": p.refused.Load(), "connections": p.connection()}
	return s
}

func (p *Publisher) spoolHealth() heelerv1.CollectorStatus {
	st := p.Spool.Stats()
	s := heelerv1.CollectorStatus{State: heelerv1.CollectorOK, Counts: map[string]uint64{
		"dropped": st.Dropped, "damaged": st.Damaged, "in_memory": st.Memory, "foreign_files": st.Foreign,
	}}
	if st.Trouble != "" {
		s.State, s.Why = heelerv1.CollectorFailing, st.Trouble
	}
	return s
}

// ClockOffset is the node's clock minus the bus server's, and how far off that may be, where both are known.
func (p *Publisher) ClockOffset() (offset *int64, within *uint64) {
	o, w, known := p.Clock.get(p.Clock.now())
	if !known {
		return nil, nil
	}
	return heelerv1.Some(o.Nanoseconds()), heelerv1.Some(uint64(w.Nanoseconds()))
}
