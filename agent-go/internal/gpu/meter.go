package gpu

import (
	"strings"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// measure is one value, or the reason why there is none.
type measure struct {
	value  heelerv1.Value
	status nvml.Status
}

// values are what a visit gave. Columns that were not read have the status Unread.
type values [allColumns]measure

func (v *values) clear() {
	for i := range v {
		v[i].status = nvml.Unread
	}
}

// visit says what a visit is to do.
type visit struct {
	end    bool // of a window: read also what is read once
	window time.Time
	length time.Duration
}

// reading is what one visit to a GPU gave.
type reading struct {
	// gone is the status that ended the visit early: the GPU is lost, or another stands at its place.
	gone  nvml.Status
	moved bool
	values
	powerKind   string
	procs       processList
	links       []linkState
	parts       []partReading
	partsListed bool // parts are all the MIG devices that there are
	ends        []heelerv1.NVLink
	rejected    uint64
}

// meter reads one GPU. All its methods but call run under the GPU's guard, one at a time.
type meter struct {
	dev     nvml.Device
	uuid    string
	pidMax  uint64
	fast    []*reader
	slow    []*reader
	tick    asker
	window  asker
	power   powerSource
	limitW  float64 // the last known power limit
	links   links
	upLinks heelerv1.Value // as of the last window
	mps     rest
	parts   []*partMeter
	listed  bool // parts are known
	divided bool // in MIG mode
	perf    perfMonitor
	traffic traffic
	calling atomic.Pointer[string]
}

// newMeter returns a meter for a GPU. powerKind is what power_w has been of this GPU so far, if it has been anything.
func (c *Collector) newMeter(dev nvml.Device, g *heelerv1.Gpu, powerKind string) *meter {
	return &meter{
		dev: dev, uuid: g.UUID, pidMax: c.PIDMax, fast: everyTick(), slow: everyWindow(), tick: tickFields(),
		window: windowFields(), power: powerSource{kind: powerKind, ofCall: kindOfCall(g)},
		perf: perfMonitor{allowed: &c.profiling, uuid: g.UUID, claims: &c.claims, open: dev.Profiler},
	}
}

// call is what the meter is calling now, for the report on a GPU that hangs.
func (m *meter) call() string {
	if name := m.calling.Load(); name != nil {
		return *name
	}
	return "nothing"
}

func (m *meter) enter(name string) { m.calling.Store(&name) }

// visit reads the columns of each tick and, at the end of a window, those of each window.
func (m *meter) visit(v visit) *reading {
	r := &reading{}
	r.clear()
	if m.isElsewhere(r) {
		return r
	}
	if m.limitW == 0 {
		m.readPowerLimit()
	}
	put := func(c column, v heelerv1.Value, s nvml.Status) { m.take(r, c, v, s) }
	m.readTick(r, put)
	if r.gone != nvml.OK || !m.askAll(m.fast, m.dev, put, &r.gone) {
		return r
	}
	if v.end && !m.askAll(m.slow, m.dev, put, &r.gone) {
		return r
	}
	if v.end || !m.listed {
		m.readMIG(r)
	}
	if v.end {
		m.readWindow(v, r, put)
	}
	m.visitParts(v, r)
	if v.end {
		m.readProcesses(r)
	}
	r.rejected += r.procs.rejected
	return r
}

// isElsewhere tells whether the handle now stands for another GPU, as after a driver reload with one GPU fewer. It is
// asked with each visit, which costs less than any answer of the driver, so that no reading goes to a wrong GPU.
func (m *meter) isElsewhere(r *reading) bool {
	m.enter("UUID")
	uuid, s := m.dev.UUID()
	if s == nvml.OK && uuid != m.uuid {
		r.moved, r.gone = true, nvml.NotFound
		return true
	}
	if s == nvml.Lost || s == nvml.ResetRequired || driverIsGone(s) {
		r.gone = s
		return true
	}
	return false
}

func driverIsGone(s nvml.Status) bool {
	return s == nvml.Uninitialized || s == nvml.DriverNotLoaded || s == nvml.LibRMVersionMismatch
}

func (m *meter) readPowerLimit() {
	m.enter("power limit")
	if mw, s := m.dev.PowerLimitMilliwatts(); s == nvml.OK {
		m.limitW = float64(mw) / milli
	}
}

// readTick asks for the fields of each tick, and the power.
func (m *meter) readTick(r *reading, put put) {
	m.enter("power and memory temperature")
	m.tick.ask(m.dev)
	m.power.read(m.dev, &m.tick.fields[tickPowerAverage], &m.tick.fields[tickPowerInstant], put)
	r.powerKind = m.power.kind
	temperature := &m.tick.fields[tickMemoryTemperature]
	put(memTempC, heelerv1.UintValue(temperature.Value), temperature.Status)
}

// readWindow asks for the fields of each window, the links and the performance monitor.
func (m *meter) readWindow(v visit, r *reading, put put) {
	m.enter("field values")
	m.window.ask(m.dev)
	m.window.takePlain(put)
	m.enter("NVLinks")
	r.links = m.links.read(m.dev, m.window.fields, m.window.fields[windowLinkCount], put)
	if up := r.values[nvlinkLinksUp]; up.status == nvml.OK && up.value != m.upLinks {
		if m.upLinks.Known() {
			r.ends = linkEnds(m.dev)
		}
		m.upLinks = up.value
	}
	m.enter("performance monitor")
	m.perf.read(v, put)
	tx, rx := &m.window.fields[windowNVLinkTx], &m.window.fields[windowNVLinkRx]
	if tx.Status.Lacking() && r.values[nvlinkTx].status != nvml.OK {
		m.links.bytes(m.dev, tx, rx)
	}
	m.traffic.read(v, m.window.fields[windowNVLinkTx:windowPlain], func(c column, v heelerv1.Value, s nvml.Status) {
		if r.values[c].status != nvml.OK { // the performance monitor's average is better
			put(c, v, s)
		}
	})
	if limit, ok := r.values[powerLimitW].value.Float(); ok {
		m.limitW = limit
	}
}

// askAll makes the calls of the readers until one says that the GPU is gone.
func (m *meter) askAll(readers []*reader, d nvml.Device, put put, gone ...*nvml.Status) bool {
	for _, r := range readers {
		m.enter(r.name)
		r.ask(d, put)
		for _, g := range gone {
			if *g != nvml.OK {
				return false
			}
		}
	}
	return true
}

// askAnew asks again for all that the GPU has shown it lacks.
func (m *meter) askAnew() {
	for _, readers := range [][]*reader{m.fast, m.slow} {
		for _, r := range readers {
			r.rest = rest{}
		}
	}
	m.mps, m.links.look, m.links.calls = rest{}, rest{}, rest{}
	for _, a := range []*asker{&m.tick, &m.window, &m.links.modern, &m.links.fields, &m.links.traffic} {
		clear(a.rests)
	}
}

// take records a value of the GPU, if it can be true.
func (m *meter) take(r *reading, c column, v heelerv1.Value, s nvml.Status) {
	if s == nvml.Lost || driverIsGone(s) {
		r.gone = s
	}
	m.set(r, &r.values, c, v, s)
}

// set records a value, if it can be true.
func (m *meter) set(r *reading, to *values, c column, v heelerv1.Value, s nvml.Status) {
	if s == nvml.OK {
		var ok bool
		if v, ok = m.plausible(c, v); !ok {
			s = nvml.Implausible
			r.rejected++
		}
	}
	if s != nvml.OK {
		v = heelerv1.Value{}
	}
	to[c] = measure{v, s}
}

// vital are what any GPU that works has at least some of.
var vital = [...]column{
	powerW, powerInstantW, tempC, memTempC, smClockMHz, memClockMHz, utilRatio, fbTotalBytes, clockEventReasons,
}

// verdict is how the GPU as a whole answers: well, or with the error that it gives to all that it is asked with each
// tick. A call that it lacks, or that we may not make, is no error.
func (r *reading) verdict() nvml.Status {
	if r.gone != nvml.OK {
		return r.gone
	}
	worst := nvml.OK
	for _, c := range vital {
		switch s := r.values[c].status; {
		case s == nvml.OK:
			return nvml.OK
		case s == nvml.Unread || s == nvml.Implausible || s == nvml.Blank || s == nvml.NoPermission || s.Lacking():
		case worst == nvml.OK:
			worst = s
		}
	}
	return worst
}

// closeMonitors closes the performance monitors.
func (m *meter) closeMonitors() {
	m.enter("closing the performance monitor")
	for _, p := range m.parts {
		p.perf.close()
	}
	m.perf.close()
}

// probe asks just enough to tell whether the GPU is there.
func (m *meter) probe() heelerv1.GpuState {
	var r reading
	if m.isElsewhere(&r) {
		if r.gone == nvml.Lost || r.moved {
			return heelerv1.GpuLost
		}
		return heelerv1.GpuUnknown
	}
	m.enter("probe")
	_, power := m.dev.PowerMilliwatts()
	_, temp := m.dev.Temperature()
	switch {
	case power == nvml.Lost || temp == nvml.Lost:
		return heelerv1.GpuLost
	case power == nvml.OK || temp == nvml.OK:
		return heelerv1.GpuOK
	default:
		return heelerv1.GpuUnknown
	}
}

// powerSource keeps power_w of one kind: the driver's mean over a second, which says more, or the power at one moment.
type powerSource struct {
	kind   string // empty until it is known, or where nobody knows
	ofCall string // what the older call gives on this board
	call   bool   // neither field is there
}

const (
	powerAverage = "average"
	powerInstant = "instant"
)

// kindOfCall says what the older call gives: the mean, from Ampere on, except for the first board of it.
func kindOfCall(g *heelerv1.Gpu) string {
	switch g.Architecture {
	case "":
		return ""
	case "kepler", "maxwell", "pascal", "volta", "turing":
		return powerInstant
	case "ampere":
		for _, board := range []string{"A100", "A800", "A30"} {
			if strings.Contains(g.Model, board) {
				return powerInstant
			}
		}
	}
	return powerAverage
}

// read takes the two fields, and makes the older call where neither is there.
func (p *powerSource) read(d nvml.Device, average, instant *nvml.Field, put put) {
	if average.Status == nvml.OK && average.Value == 0 && instant.Status == nvml.OK && instant.Value > 0 {
		average.Status = nvml.NotSupported // no board that runs draws nothing
	}
	put(powerInstantW, watts(instant.Value), instant.Status)
	if p.kind == "" && !p.call {
		p.choose(average.Status, instant.Status)
	}
	switch {
	case p.kind == powerAverage && !average.Status.Lacking():
		put(powerW, watts(average.Value), average.Status)
	case p.kind == powerInstant && !instant.Status.Lacking():
		put(powerW, watts(instant.Value), instant.Status)
	case p.kind == p.ofCall:
		v, s := d.PowerMilliwatts()
		put(powerW, watts(v), s)
	default:
		put(powerW, heelerv1.Value{}, average.Status)
	}
}

// choose waits for a clear answer: an error that passes must not decide what power_w is for good.
func (p *powerSource) choose(average, instant nvml.Status) {
	switch {
	case average == nvml.OK:
		p.kind = powerAverage
	case !average.Lacking() && average != nvml.InvalidArgument:
	case instant == nvml.OK:
		p.kind = powerInstant
	case instant.Lacking() || instant == nvml.InvalidArgument:
		p.kind, p.call = p.ofCall, true
	}
}

func watts(milliwatts uint64) heelerv1.Value { return heelerv1.FloatValue(float64(milliwatts) / milli) }
