package gpu

import (
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

// reading is what one visit to a GPU gave. Columns that were not read have the status Unread.
type reading struct {
	// gone is the status that ended the visit early: the GPU is lost, or another stands at its place.
	gone     nvml.Status
	moved    bool
	values   [allColumns]measure
	procs    []nvml.Process
	rejected uint64
}

// meter reads one GPU. All its methods but call run under the GPU's guard, one at a time.
type meter struct {
	dev     nvml.Device
	uuid    string
	fast    []reader
	slow    []reader
	limitW  float64 // the last known power limit
	perf    perfMonitor
	traffic traffic
	calling atomic.Pointer[string]
}

func newMeter(dev nvml.Device, uuid string, profiling *atomic.Int32, claims *claims) *meter {
	return &meter{
		dev: dev, uuid: uuid, fast: everyTick(), slow: everyWindow(),
		perf: perfMonitor{allowed: profiling, uuid: uuid, claims: claims},
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
func (m *meter) visit(endOfWindow bool) reading {
	var r reading
	for i := range r.values {
		r.values[i].status = nvml.Unread
	}
	if m.isElsewhere(&r) {
		return r
	}
	if m.limitW == 0 {
		m.readPowerLimit()
	}
	if !m.run(m.fast, &r) || !endOfWindow || !m.run(m.slow, &r) {
		return r
	}
	m.readFields(&r)
	m.readProcesses(&r)
	if limit, ok := r.values[powerLimitW].value.Float(); ok {
		m.limitW = limit
	}
	return r
}

// isElsewhere tells whether the handle now stands for another GPU, as after a driver reload with one GPU fewer.
func (m *meter) isElsewhere(r *reading) bool {
	m.enter("UUID")
	uuid, s := m.dev.UUID()
	if s == nvml.OK && uuid != m.uuid {
		r.moved, r.gone = true, nvml.NotFound
		return true
	}
	if s == nvml.Lost || s == nvml.ResetRequired {
		r.gone = s
		return true
	}
	return false
}

func (m *meter) readPowerLimit() {
	m.enter("power limit")
	if mw, s := m.dev.PowerLimitMilliwatts(); s == nvml.OK {
		m.limitW = float64(mw) / milli
	}
}

// run makes the calls of the readers until one says that the GPU is lost.
func (m *meter) run(readers []reader, r *reading) bool {
	for i := range readers {
		m.enter(readers[i].name)
		readers[i].read(m.dev, func(c column, v heelerv1.Value, s nvml.Status) { m.take(r, c, v, s) })
		if r.gone != nvml.OK {
			return false
		}
	}
	return true
}

// take records a value if it can be true.
func (m *meter) take(r *reading, c column, v heelerv1.Value, s nvml.Status) {
	if s == nvml.Lost {
		r.gone = s
	}
	if s == nvml.OK && !m.plausible(c, v) {
		s = nvml.Implausible
		r.rejected++
	}
	if s != nvml.OK {
		v = heelerv1.Value{}
	}
	r.values[c] = measure{v, s}
}

const (
	powerLimits       = 3     // times the limit: no board draws that
	highestPowerW     = 20000 // where the limit is not known
	highestTempC      = 200
	highestClockMHz   = 20000
	highestPCIeGen    = 16
	highestBytesPerS  = 1 << 50
	highestPState     = 32
	highestRecoveryNo = 1000
)

func (m *meter) plausible(c column, v heelerv1.Value) bool {
	f, ok := v.Float()
	if !ok || f < 0 {
		return false
	}
	switch c {
	case powerW:
		if m.limitW > 0 {
			return f <= powerLimits*m.limitW
		}
		return f <= highestPowerW
	case powerLimitW, powerLimitDefaultW:
		return f > 0 && f <= highestPowerW
	case tempC, memTempC, tempSlowdownC:
		return f <= highestTempC
	case smClockMHz, memClockMHz, smClockMaxMHz, memClockMaxMHz:
		return f <= highestClockMHz
	case utilRatio, memUtilRatio, smActiveRatio, smOccupancyRatio, tensorActiveRatio, dramActiveRatio:
		return f <= 1
	case fanRatio:
		return f <= 2 // drivers report more than 100 % for fans above their nominal speed
	case pcieTx, pcieRx, nvlinkTx, nvlinkRx:
		return f <= highestBytesPerS
	case pcieGen, pcieGenMax:
		return f <= highestPCIeGen
	case pcieWidth, pcieWidthMax, pstate:
		return f <= highestPState
	case recoveryAction:
		return f <= highestRecoveryNo
	default:
		return true
	}
}

// readFields asks for everything that comes as field values, in one call, and for the performance monitor.
func (m *meter) readFields(r *reading) {
	m.enter("field values")
	fields := []nvml.Field{
		{ID: nvml.FieldRecoveryAction},
		{ID: nvml.FieldNVLinkCRCFlit}, {ID: nvml.FieldNVLinkCRCData},
		{ID: nvml.FieldNVLinkReplay}, {ID: nvml.FieldNVLinkRecovery},
		{ID: nvml.FieldNVLinkTxKiB, Scope: nvml.AllLinks}, {ID: nvml.FieldNVLinkRxKiB, Scope: nvml.AllLinks},
		{ID: nvml.FieldPCIeTxBytes}, {ID: nvml.FieldPCIeRxBytes},
	}
	_ = m.dev.Fields(fields)
	m.take(r, recoveryAction, heelerv1.UintValue(fields[0].Value), fields[0].Status)
	crc, s := sum(fields[1], fields[2])
	m.take(r, nvlinkCRCErrors, heelerv1.UintValue(crc), s)
	m.take(r, nvlinkReplayErrors, heelerv1.UintValue(fields[3].Value), fields[3].Status)
	m.take(r, nvlinkRecoveryErrors, heelerv1.UintValue(fields[4].Value), fields[4].Status)
	m.enter("performance monitor")
	m.perf.read(m.dev, func(c column, v heelerv1.Value, s nvml.Status) { m.take(r, c, v, s) })
	m.traffic.read(fields[5:], time.Now(), func(c column, v heelerv1.Value, s nvml.Status) {
		if r.values[c].status != nvml.OK { // the performance monitor's average is better
			m.take(r, c, v, s)
		}
	})
}

// sum adds two counters; one of them is enough.
func sum(a, b nvml.Field) (uint64, nvml.Status) {
	switch {
	case a.Status != nvml.OK:
		return b.Value, b.Status
	case b.Status != nvml.OK:
		return a.Value, a.Status
	default:
		return a.Value + b.Value, nvml.OK
	}
}

func (m *meter) readProcesses(r *reading) {
	m.enter("processes")
	if procs, s := m.dev.Processes(); s == nvml.OK {
		r.procs = procs
	}
}

// probe asks just enough to tell whether the GPU is there.
func (m *meter) probe() heelerv1.GpuState {
	var r reading
	if m.isElsewhere(&r) {
		return heelerv1.GpuLost
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
