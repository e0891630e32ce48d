package agent

import (
	"maps"
	"runtime"
	"sync/atomic"
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
	unkept   *atomic.Uint64
	inv      *inventory
	// profiling is the state of the GPUs' performance monitors, and why they are not well.
	profiling func() (heelerv1.CollectorState, string)
}

// collectors are the states of the table's entries, and of the performance monitors, which are read with the GPUs but
// may be refused or given away on their own.
func (r *reporter) collectors() map[string]heelerv1.CollectorStatus {
	all := r.runner.Status()
	gpus, ok := all["nvml"]
	switch {
	case !ok || r.profiling == nil || gpus.Readings == nil: // switched off
		return all
	case gpus.State == heelerv1.CollectorOff || gpus.State == heelerv1.CollectorAbsent:
		all["gpm"] = heelerv1.CollectorStatus{State: gpus.State, Why: gpus.Why}
	default:
		state, why := r.profiling()
		all["gpm"] = heelerv1.CollectorStatus{State: state, Why: why}
	}
	return all
}

func (r *reporter) message() *heelerv1.AgentStatus {
	m := &heelerv1.AgentStatus{
		Version: r.version, StartedTS: heelerv1.Some(r.started.UnixNano()),
		IntervalNS: heelerv1.Some(uint64(r.interval)), Inventory: r.inv.currentDigest(),
		Collectors: r.collectors(),
	}
	if cpu, err := hostfs.CPUTime(); err == nil {
		m.CPUS = heelerv1.Some(heelerv1.Number(cpu.Seconds()))
	}
	if rss, err := hostfs.RSS(); err == nil {
		m.RSSBytes = &rss
	}
	m.Goroutines = heelerv1.Some(uint64(runtime.NumGoroutine()))
	if files, err := hostfs.Descriptors(); err == nil {
		m.OpenFDs = &files
	}
	if r.pub != nil {
		maps.Copy(m.Collectors, r.pub.Health())
		m.ClockOffsetNS, m.ClockOffsetErrorNS = r.pub.ClockOffset()
		spool := r.pub.Spool.Stats()
		m.DroppedSamples = heelerv1.Some(r.pub.Ring.Dropped())
		m.SpoolEvents, m.SpoolBytes = &spool.Waiting, &spool.Bytes
		m.DroppedEvents = heelerv1.Some(spool.Dropped + spool.Damaged + r.pub.Refused() + r.unkept.Load())
	}
	return m
}
