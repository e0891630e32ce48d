package gpu

import (
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// retryWindows is how many windows pass before the performance monitor is tried again after it was refused.
const retryWindows = 30

// perfMonitor averages the profiling metrics over a window: a sample at the end of each, the difference to the last.
type perfMonitor struct {
	allowed  *atomic.Int32 // of the whole node: nvml.OK, or why not now
	uuid     string
	claims   *claims
	profiler nvml.Profiler
	why      nvml.Status
	wait     int
	last     atomic.Int32 // how the last sample went
}

// profile says which metric is which column, and what its unit is worth.
var profile = [...]struct {
	metric nvml.Metric
	column column
	unit   float64
}{
	{nvml.MetricSMActive, smActiveRatio, 1.0 / percent},
	{nvml.MetricSMOccupancy, smOccupancyRatio, 1.0 / percent},
	{nvml.MetricTensorActive, tensorActiveRatio, 1.0 / percent},
	{nvml.MetricDRAMActive, dramActiveRatio, 1.0 / percent},
	{nvml.MetricPCIeTx, pcieTx, mib},
	{nvml.MetricPCIeRx, pcieRx, mib},
	{nvml.MetricNVLinkTx, nvlinkTx, mib},
	{nvml.MetricNVLinkRx, nvlinkRx, mib},
}

func (p *perfMonitor) read(d nvml.Device, put put) {
	s := p.sample(d)
	p.last.Store(int32(s))
	if s != nvml.OK {
		for _, m := range profile {
			put(m.column, heelerv1.Value{}, s)
		}
		return
	}
	values := make([]nvml.MetricValue, len(profile))
	for i, m := range profile {
		values[i].Metric = m.metric
	}
	s = p.profiler.Read(values)
	for i, m := range profile {
		status := values[i].Status
		if s != nvml.OK {
			status = s
		}
		put(m.column, heelerv1.FloatValue(values[i].Value*m.unit), status)
	}
}

func (p *perfMonitor) sample(d nvml.Device) nvml.Status {
	if s := nvml.Status(p.allowed.Load()); s != nvml.OK {
		p.close()
		return s
	}
	if p.profiler == nil {
		if p.wait > 0 {
			p.wait--
			return p.why
		}
		p.wait = retryWindows
		if !p.claims.take(p.uuid, monitor) {
			p.why = nvml.NotSupported // as it was when it was lent
			return p.why
		}
		if p.profiler, p.why = d.Profiler(); p.why != nvml.OK {
			p.profiler = nil
			p.claims.free(p.uuid, monitor)
			return p.why
		}
	}
	s := p.profiler.Sample()
	if s == nvml.NoPermission || s == nvml.InUse {
		p.close() // somebody else has it, or we no longer may: leave it alone for a while
		p.why, p.wait = s, retryWindows
	}
	return s
}

// close frees the samples. The next reading may open it again at once.
func (p *perfMonitor) close() {
	p.wait = 0
	if p.profiler != nil {
		p.profiler.Close()
		p.profiler = nil
		p.claims.free(p.uuid, monitor)
	}
}

// traffic turns byte counters into rates over the time since the last reading.
type traffic struct {
	at   time.Time
	last [4]uint64
	have [4]bool
}

// read takes NVLink sent and received in KiB, and PCIe sent and received in bytes.
func (t *traffic) read(fields []nvml.Field, now time.Time, put put) {
	seconds := now.Sub(t.at).Seconds()
	columns := [4]column{nvlinkTx, nvlinkRx, pcieTx, pcieRx}
	units := [4]float64{kib, kib, 1, 1}
	for i, f := range fields {
		s := f.Status
		var v heelerv1.Value
		switch {
		case s != nvml.OK:
		case !t.have[i] || seconds <= 0 || f.Value < t.last[i]:
			s = nvml.Unread // the first reading, or the counter began again
		default:
			v = heelerv1.FloatValue(float64(f.Value-t.last[i]) * units[i] / seconds)
		}
		put(columns[i], v, s)
		t.last[i], t.have[i] = f.Value, f.Status == nvml.OK
	}
	t.at = now
}
