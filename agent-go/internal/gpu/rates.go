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
	open     func() (nvml.Profiler, nvml.Status)
	shares   bool // the claim is that of the whole GPU, of which this is a part
	profiler nvml.Profiler
	why      nvml.Status
	wait     int
	at       time.Time    // the end of the window that has the last sample
	last     atomic.Int32 // how the last sample went
}

// profile says which metric is which column, and what its unit is worth.
var profile = [...]struct {
	metric nvml.Metric
	column column
	unit   float64
}{
	{nvml.MetricGraphicsActive, graphicsActiveRatio, 1.0 / percent},
	{nvml.MetricSMActive, smActiveRatio, 1.0 / percent},
	{nvml.MetricSMOccupancy, smOccupancyRatio, 1.0 / percent},
	{nvml.MetricTensorActive, tensorActiveRatio, 1.0 / percent},
	{nvml.MetricDRAMActive, dramActiveRatio, 1.0 / percent},
	{nvml.MetricIntActive, intActiveRatio, 1.0 / percent},
	{nvml.MetricFP64Active, fp64ActiveRatio, 1.0 / percent},
	{nvml.MetricFP32Active, fp32ActiveRatio, 1.0 / percent},
	{nvml.MetricFP16Active, fp16ActiveRatio, 1.0 / percent},
	{nvml.MetricPCIeTx, pcieTx, mib},
	{nvml.MetricPCIeRx, pcieRx, mib},
	{nvml.MetricNVLinkTx, nvlinkTx, mib},
	{nvml.MetricNVLinkRx, nvlinkRx, mib},
}

// read averages over this window. Without a sample at its beginning there is no such average: one over a longer time
// would not be this window's.
func (p *perfMonitor) read(v visit, put put) {
	s := p.sample()
	p.last.Store(int32(s))
	fresh := s == nvml.OK && p.at.Equal(v.window.Add(-v.length))
	if p.at = v.window; s != nvml.OK {
		p.at = time.Time{}
	}
	if !fresh {
		if s == nvml.OK {
			s = nvml.Unread
		}
		for _, m := range profile {
			put(m.column, heelerv1.Value{}, s)
		}
		return
	}
	var values [len(profile)]nvml.MetricValue
	for i, m := range profile {
		values[i].Metric = m.metric
	}
	s = p.profiler.Read(values[:])
	for i, m := range profile {
		status := values[i].Status
		if s != nvml.OK {
			status = s
		}
		put(m.column, heelerv1.FloatValue(values[i].Value*m.unit), status)
	}
}

func (p *perfMonitor) sample() nvml.Status {
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
		if p.profiler, p.why = p.open(); p.why != nvml.OK {
			p.profiler = nil
			p.unclaim()
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
		p.unclaim()
	}
}

func (p *perfMonitor) unclaim() {
	if !p.shares {
		p.claims.free(p.uuid, monitor)
	}
}

// traffic turns byte counters into rates over the window.
type traffic struct {
	window time.Time // whose end has the last reading
	at     time.Time
	last   [4]uint64
	have   [4]bool
}

// read takes NVLink sent and received in KiB, and PCIe sent and received in bytes.
func (t *traffic) read(v visit, fields []nvml.Field, put put) {
	now := time.Now()
	seconds := now.Sub(t.at).Seconds()
	follows := t.window.Equal(v.window.Add(-v.length)) && seconds > 0
	columns := [...]column{nvlinkTx, nvlinkRx, pcieTx, pcieRx}
	units := [...]float64{kib, kib, 1, 1}
	for i, f := range fields {
		s := f.Status
		var rate heelerv1.Value
		switch {
		case s != nvml.OK:
		case !f.Wide: // of 32 bits, a busy link turns it over many times in a window
			s = nvml.NotSupported
		case !follows || !t.have[i] || f.Value < t.last[i]:
			s = nvml.Unread // the first reading, or the counter began again
		default:
			rate = heelerv1.FloatValue(float64(f.Value-t.last[i]) * units[i] / seconds)
		}
		put(columns[i], rate, s)
		t.last[i], t.have[i] = f.Value, f.Status == nvml.OK
	}
	t.window, t.at = v.window, now
}
