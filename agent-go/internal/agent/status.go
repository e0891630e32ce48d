package agent

import (
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// reporter makes the AgentStatus.
type reporter struct {
	version  string
	started  time.Time
	interval time.Duration
	runner   *collector.Runner
	pub      *bus.Publisher // nil without a bus
	inv      *inventory
}

func (r *reporter) message() *heelerv1.AgentStatus {
	m := &heelerv1.AgentStatus{
		Version: r.version, StartedTS: heelerv1.Some(r.started.UnixNano()),
		IntervalNS: heelerv1.Some(uint64(r.interval)), Inventory: r.inv.currentDigest(),
		Collectors: r.runner.Status(),
	}
	if cpu, err := hostfs.CPUTime(); err == nil {
		m.CPUS = heelerv1.Some(heelerv1.Number(cpu.Seconds()))
	}
	if rss, err := hostfs.RSS(); err == nil {
		m.RSSBytes = &rss
	}
	if r.pub != nil {
		spool := r.pub.Spool.Stats()
		m.DroppedSamples = heelerv1.Some(r.pub.Ring.Dropped())
		m.SpoolEvents, m.SpoolBytes = &spool.Waiting, &spool.Bytes
		m.DroppedEvents = heelerv1.Some(spool.Dropped + r.pub.Refused())
	}
	return m
}
