package gpu

import (
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// put takes one value that was read, or the reason why it was not.
type put func(c column, v heelerv1.Value, s nvml.Status)

// reader makes one call, or a few that belong together, for these columns. Its name is what a hanging GPU is reported
// with.
type reader struct {
	name    string
	columns []column
	read    func(d nvml.Device, put put)
	rest    rest
}

// What a GPU has answered it lacks so many times in a row is not asked for a while: half of the calls that a board
// could be asked are not for it. A new driver is a new handle, which is asked anew.
const (
	lacksAfter = 3
	restVisits = 60
)

// rest is how long a question is not asked.
type rest struct {
	lacked, left int
}

// over tells whether to ask, and counts.
func (r *rest) over() bool {
	if r.left == 0 {
		return true
	}
	r.left--
	return false
}

// heard takes what was answered.
func (r *rest) heard(lacks bool) {
	if !lacks {
		r.lacked = 0
		return
	}
	if r.lacked++; r.lacked >= lacksAfter {
		r.left = restVisits
	}
}

// ask reads, unless the GPU is known to lack it.
func (r *reader) ask(d nvml.Device, put put) {
	if !r.rest.over() {
		for _, c := range r.columns {
			put(c, heelerv1.Value{}, nvml.NotSupported)
		}
		return
	}
	lacks := true
	r.read(d, func(c column, v heelerv1.Value, s nvml.Status) {
		lacks = lacks && s.Lacking()
		put(c, v, s)
	})
	r.rest.heard(lacks)
}

// scaled reads a whole number and divides it.
func scaled(name string, c column, by float64, call func(nvml.Device) (uint64, nvml.Status)) *reader {
	return &reader{name: name, columns: []column{c}, read: func(d nvml.Device, put put) {
		v, s := call(d)
		put(c, heelerv1.FloatValue(float64(v)/by), s)
	}}
}

// whole reads a whole number.
func whole(name string, c column, call func(nvml.Device) (uint64, nvml.Status)) *reader {
	return &reader{name: name, columns: []column{c}, read: func(d nvml.Device, put put) {
		v, s := call(d)
		put(c, heelerv1.UintValue(v), s)
	}}
}

// switched reads something that is on or off.
func switched(name string, c column, call func(nvml.Device) (bool, nvml.Status)) *reader {
	return &reader{name: name, columns: []column{c}, read: func(d nvml.Device, put put) {
		on, s := call(d)
		put(c, flag(on), s)
	}}
}

func flag(b bool) heelerv1.Value {
	if b {
		return heelerv1.UintValue(1)
	}
	return heelerv1.UintValue(0)
}

const (
	milli   = 1000
	percent = 100
)

var memoryColumns = []column{fbTotalBytes, fbUsedBytes, fbReservedBytes}

// everyTick are read with each tick: what moves within a window.
func everyTick() []*reader {
	return []*reader{
		whole("temperature", tempC, nvml.Device.Temperature),
		{name: "temperature margin", columns: []column{tempMarginC}, read: readMargin},
		whole("SM clock", smClockMHz, func(d nvml.Device) (uint64, nvml.Status) { return d.ClockMHz(nvml.ClockSM) }),
		whole("memory clock", memClockMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMHz(nvml.ClockMemory)
		}),
		{name: "utilization", columns: []column{utilRatio, memUtilRatio}, read: readUtilization},
		scaled("encoder", encoderUtilRatio, percent, nvml.Device.EncoderPercent),
		scaled("decoder", decoderUtilRatio, percent, nvml.Device.DecoderPercent),
		{name: "memory", columns: memoryColumns, read: readMemory},
		whole("clock event reasons", clockEventReasons, nvml.Device.ClockEventReasons),
	}
}

// everyWindow are read once a window: what counts or hardly changes.
func everyWindow() []*reader {
	readers := []*reader{
		scaled("fan", fanRatio, percent, nvml.Device.FanPercent),
		whole("BAR1 memory", bar1UsedBytes, nvml.Device.BAR1UsedBytes),
		scaled("energy", energyJ, milli, nvml.Device.EnergyMillijoules),
		scaled("power limit", powerLimitW, milli, nvml.Device.PowerLimitMilliwatts),
		scaled("default power limit", powerLimitDefaultW, milli, nvml.Device.PowerLimitDefaultMilliwatts),
		{name: "power limits", columns: []column{powerLimitMinW, powerLimitMaxW}, read: readPowerLimits},
		whole("highest SM clock", smClockMaxMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMaxMHz(nvml.ClockSM)
		}),
		whole("highest memory clock", memClockMaxMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMaxMHz(nvml.ClockMemory)
		}),
		{name: "remapped rows", columns: []column{
			remappedRowsCorrectable, remappedRowsUncorrectable, remapPending, remapFailed,
		}, read: readRemappedRows},
		whole("retired pages", retiredPagesSBE, func(d nvml.Device) (uint64, nvml.Status) { return d.RetiredPages(false) }),
		whole("retired pages", retiredPagesDBE, func(d nvml.Device) (uint64, nvml.Status) { return d.RetiredPages(true) }),
		whole("PCIe generation", pcieGen, nvml.Device.PCIeGeneration),
		whole("PCIe width", pcieWidth, nvml.Device.PCIeWidth),
		whole("highest PCIe generation", pcieGenMax, nvml.Device.PCIeGenerationMax),
		whole("highest PCIe width", pcieWidthMax, nvml.Device.PCIeWidthMax),
		whole("PCIe replays", pcieReplays, nvml.Device.PCIeReplays),
		whole("performance state", pstate, nvml.Device.PState),
		switched("persistence", persistence, nvml.Device.Persistence),
		switched("ECC mode", eccMode, nvml.Device.ECCMode),
		{name: "fabric", columns: []column{fabricState, fabricStatus}, read: readFabric},
	}
	readers = append(readers, everyThreshold()...)
	readers = append(readers, everyViolation()...)
	return append(readers, everyECC()...)
}

func everyThreshold() []*reader {
	var readers []*reader
	for _, t := range []struct {
		c    column
		kind nvml.Threshold
	}{
		{tempShutdownC, nvml.ThresholdShutdown}, {tempSlowdownC, nvml.ThresholdSlowdown},
		{tempGPUMaxC, nvml.ThresholdGPUMax}, {tempMemMaxC, nvml.ThresholdMemoryMax},
	} {
		readers = append(readers, whole("temperature threshold", t.c, func(d nvml.Device) (uint64, nvml.Status) {
			return d.TemperatureThreshold(t.kind)
		}))
	}
	return readers
}

func everyViolation() []*reader {
	var readers []*reader
	for _, v := range []struct {
		c    column
		kind nvml.Violation
	}{
		{violationPowerNS, nvml.ViolationPower}, {violationThermalNS, nvml.ViolationThermal},
		{violationSyncBoostNS, nvml.ViolationSyncBoost}, {violationBoardLimitNS, nvml.ViolationBoardLimit},
		{violationLowUtilizationNS, nvml.ViolationLowUtilization}, {violationReliabilityNS, nvml.ViolationReliability},
		{violationAppClocksNS, nvml.ViolationAppClocks}, {violationBaseClocksNS, nvml.ViolationBaseClocks},
	} {
		readers = append(readers, whole("violation time", v.c, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ViolationNanoseconds(v.kind)
		}))
	}
	return readers
}

func everyECC() []*reader {
	var readers []*reader
	for _, e := range []struct {
		c                    column
		corrected, aggregate bool
	}{
		{eccCorrectedVolatile, true, false}, {eccUncorrectedVolatile, false, false},
		{eccCorrectedAggregate, true, true}, {eccUncorrectedAggregate, false, true},
	} {
		readers = append(readers, whole("ECC", e.c, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ECC(e.corrected, e.aggregate)
		}))
	}
	return readers
}

func readMargin(d nvml.Device, put put) {
	v, s := d.TemperatureMargin()
	put(tempMarginC, heelerv1.IntValue(v), s)
}

func readUtilization(d nvml.Device, put put) {
	gpu, memory, s := d.UtilizationPercent()
	put(utilRatio, heelerv1.FloatValue(float64(gpu)/percent), s)
	put(memUtilRatio, heelerv1.FloatValue(float64(memory)/percent), s)
}

// readMemory: a GPU that shares the host's memory has none of its own, and says 0 of 0 where it says anything.
func readMemory(d nvml.Device, put put) {
	m, s := d.Memory()
	if s == nvml.OK && m.Total == 0 {
		s = nvml.NotSupported
	}
	put(fbTotalBytes, heelerv1.UintValue(m.Total), s)
	within := func(c column, v uint64, s nvml.Status) {
		if s == nvml.OK && v > m.Total {
			s = nvml.Implausible
		}
		put(c, heelerv1.UintValue(v), s)
	}
	within(fbUsedBytes, m.Used, s)
	if s == nvml.OK && !m.Apart {
		s = nvml.NotSupported
	}
	within(fbReservedBytes, m.Reserved, s)
}

func readPowerLimits(d nvml.Device, put put) {
	least, most, s := d.PowerLimitsMilliwatts()
	put(powerLimitMinW, heelerv1.FloatValue(float64(least)/milli), s)
	put(powerLimitMaxW, heelerv1.FloatValue(float64(most)/milli), s)
}

func readRemappedRows(d nvml.Device, put put) {
	r, s := d.RemappedRows()
	put(remappedRowsCorrectable, heelerv1.UintValue(r.Correctable), s)
	put(remappedRowsUncorrectable, heelerv1.UintValue(r.Uncorrectable), s)
	put(remapPending, flag(r.Pending), s)
	put(remapFailed, flag(r.Failed), s)
}

func readFabric(d nvml.Device, put put) {
	state, result, s := d.Fabric()
	put(fabricState, heelerv1.UintValue(state), s)
	put(fabricStatus, heelerv1.UintValue(result), s)
}
