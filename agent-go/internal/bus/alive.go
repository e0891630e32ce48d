package bus

import (
	"sync/atomic"
	"time"
)

// pulses tell when each loop of a publisher last came round, in unix nanoseconds.
type pulses struct{ samples, events, newest atomic.Int64 }

func beat(p *atomic.Int64) { p.Store(time.Now().UnixNano()) }

// stillTime is when a loop that does not come round is called stuck: each does at least once a minute, or when the
// acknowledgements of a batch are over.
const stillTime = 90 * time.Second

// Stuck names a loop of the publisher that no longer comes round, which is a fault of the agent itself: a bus that is
// away, or that refuses everything, does not hold the loops up.
func (p *Publisher) Stuck(now time.Time) (string, bool) {
	for name, last := range map[string]int64{
		"samples": p.pulses.samples.Load(), "events": p.pulses.events.Load(), "status": p.pulses.newest.Load(),
	} {
		if last != 0 && now.Sub(time.Unix(0, last)) > stillTime {
			return name, true
		}
	}
	return "", false
}

// Connected tells whether there is a connection now.
func (p *Publisher) Connected() bool { return p.nc.IsConnected() }
