package gpu

import (
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// column is a column of a GpuSample.
type column int

// The first columns are read with each tick and averaged; the next are averages over the window by their nature or
// read once a window; the last are counters and states at its end.
const (
	powerW column = iota
	tempC
	memTempC
	smClockMHz
	memClockMHz
	utilRatio
	memUtilRatio
	fbUsedBytes
	fbTotalBytes
	fanRatio
	smActiveRatio
	smOccupancyRatio
	tensorActiveRatio
	dramActiveRatio
	pcieTx
	pcieRx
	nvlinkTx
	nvlinkRx
	meanColumns // how many there are

	energyJ column = iota - 1
	powerLimitW
	powerLimitDefaultW
	smClockMaxMHz
	memClockMaxMHz
	tempSlowdownC
	eccCorrectedVolatile
	eccUncorrectedVolatile
	eccCorrectedAggregate
	eccUncorrectedAggregate
	remappedRowsCorrectable
	remappedRowsUncorrectable
	remapPending
	remapFailed
	retiredPagesSBE
	retiredPagesDBE
	pcieGen
	pcieWidth
	pcieGenMax
	pcieWidthMax
	pcieReplays
	nvlinkCRCErrors
	nvlinkReplayErrors
	nvlinkRecoveryErrors
	nvlinkLinksUp
	clockEventReasons
	violationThermalNS
	violationPowerNS
	recoveryAction
	pstate
	persistence
	allColumns
)

// names are the columns on the bus.
var names = [allColumns]string{
	powerW: "power_w", tempC: "temp_c", memTempC: "mem_temp_c", smClockMHz: "sm_clock_mhz",
	memClockMHz: "mem_clock_mhz", utilRatio: "util_ratio", memUtilRatio: "mem_util_ratio",
	fbUsedBytes: "fb_used_bytes", fbTotalBytes: "fb_total_bytes", fanRatio: "fan_ratio",
	smActiveRatio: "sm_active_ratio", smOccupancyRatio: "sm_occupancy_ratio",
	tensorActiveRatio: "tensor_active_ratio", dramActiveRatio: "dram_active_ratio",
	pcieTx: "pcie_tx_bytes_per_s", pcieRx: "pcie_rx_bytes_per_s",
	nvlinkTx: "nvlink_tx_bytes_per_s", nvlinkRx: "nvlink_rx_bytes_per_s",
	energyJ: "energy_j", powerLimitW: "power_limit_w", powerLimitDefaultW: "power_limit_default_w",
	smClockMaxMHz: "sm_clock_max_mhz", memClockMaxMHz: "mem_clock_max_mhz", tempSlowdownC: "temp_slowdown_c",
	eccCorrectedVolatile: "ecc_corrected_volatile", eccUncorrectedVolatile: "ecc_uncorrected_volatile",
	eccCorrectedAggregate: "ecc_corrected_aggregate", eccUncorrectedAggregate: "ecc_uncorrected_aggregate",
	remappedRowsCorrectable: "remapped_rows_correctable", remappedRowsUncorrectable: "remapped_rows_uncorrectable",
	remapPending: "remap_pending", remapFailed: "remap_failed",
	retiredPagesSBE: "retired_pages_sbe", retiredPagesDBE: "retired_pages_dbe",
	pcieGen: "pcie_gen", pcieWidth: "pcie_width", pcieGenMax: "pcie_gen_max", pcieWidthMax: "pcie_width_max",
	pcieReplays: "pcie_replays", nvlinkCRCErrors: "nvlink_crc_errors", nvlinkReplayErrors: "nvlink_replay_errors",
	nvlinkRecoveryErrors: "nvlink_recovery_errors", nvlinkLinksUp: "nvlink_links_up",
	clockEventReasons: "clock_event_reasons", violationThermalNS: "violation_thermal_ns",
	violationPowerNS: "violation_power_ns", recoveryAction: "recovery_action", pstate: "pstate",
	persistence: "persistence",
}

// spread are the columns whose smallest and largest reading matter.
var spread = [...]column{powerW, tempC, smClockMHz, utilRatio}

// put takes one value that was read, or the reason why it was not.
type put func(c column, v heelerv1.Value, s nvml.Status)

// reader makes one call, or a few that belong together. Its name is what a hanging GPU is reported with.
type reader struct {
	name string
	read func(d nvml.Device, put put)
}

// scaled reads a whole number and divides it.
func scaled(name string, c column, by float64, call func(nvml.Device) (uint64, nvml.Status)) reader {
	return reader{name, func(d nvml.Device, put put) {
		v, s := call(d)
		put(c, heelerv1.FloatValue(float64(v)/by), s)
	}}
}

// whole reads a whole number.
func whole(name string, c column, call func(nvml.Device) (uint64, nvml.Status)) reader {
	return reader{name, func(d nvml.Device, put put) {
		v, s := call(d)
		put(c, heelerv1.UintValue(v), s)
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

// everyTick are read with each tick: what moves within a window.
func everyTick() []reader {
	return []reader{
		scaled("power", powerW, milli, nvml.Device.PowerMilliwatts),
		whole("temperature", tempC, nvml.Device.Temperature),
		whole("SM clock", smClockMHz, func(d nvml.Device) (uint64, nvml.Status) { return d.ClockMHz(nvml.ClockSM) }),
		whole("memory clock", memClockMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMHz(nvml.ClockMemory)
		}),
		{"utilization", readUtilization},
		{"memory", readMemory},
		whole("clock event reasons", clockEventReasons, nvml.Device.ClockEventReasons),
		{"memory temperature", readMemoryTemperature},
	}
}

// everyWindow are read once a window: what counts or hardly changes.
func everyWindow() []reader {
	readers := []reader{
		scaled("fan", fanRatio, percent, nvml.Device.FanPercent),
		scaled("energy", energyJ, milli, nvml.Device.EnergyMillijoules),
		scaled("power limit", powerLimitW, milli, nvml.Device.PowerLimitMilliwatts),
		scaled("default power limit", powerLimitDefaultW, milli, nvml.Device.PowerLimitDefaultMilliwatts),
		whole("highest SM clock", smClockMaxMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMaxMHz(nvml.ClockSM)
		}),
		whole("highest memory clock", memClockMaxMHz, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ClockMaxMHz(nvml.ClockMemory)
		}),
		whole("slowdown temperature", tempSlowdownC, nvml.Device.TemperatureSlowdown),
		{"remapped rows", readRemappedRows},
		whole("retired pages", retiredPagesSBE, func(d nvml.Device) (uint64, nvml.Status) { return d.RetiredPages(false) }),
		whole("retired pages", retiredPagesDBE, func(d nvml.Device) (uint64, nvml.Status) { return d.RetiredPages(true) }),
		whole("PCIe generation", pcieGen, nvml.Device.PCIeGeneration),
		whole("PCIe width", pcieWidth, nvml.Device.PCIeWidth),
		whole("highest PCIe generation", pcieGenMax, nvml.Device.PCIeGenerationMax),
		whole("highest PCIe width", pcieWidthMax, nvml.Device.PCIeWidthMax),
		whole("PCIe replays", pcieReplays, nvml.Device.PCIeReplays),
		{"NVLink state", readLinks},
		whole("thermal violations", violationThermalNS, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ViolationNanoseconds(nvml.ViolationThermal)
		}),
		whole("power violations", violationPowerNS, func(d nvml.Device) (uint64, nvml.Status) {
			return d.ViolationNanoseconds(nvml.ViolationPower)
		}),
		whole("performance state", pstate, nvml.Device.PState),
		{"persistence", func(d nvml.Device, put put) {
			on, s := d.Persistence()
			put(persistence, flag(on), s)
		}},
	}
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

func readUtilization(d nvml.Device, put put) {
	gpu, memory, s := d.UtilizationPercent()
	put(utilRatio, heelerv1.FloatValue(float64(gpu)/percent), s)
	put(memUtilRatio, heelerv1.FloatValue(float64(memory)/percent), s)
}

// readMemory: a GPU that shares the host's memory has none of its own, and says 0 of 0 where it says anything.
func readMemory(d nvml.Device, put put) {
	total, used, s := d.MemoryBytes()
	if s == nvml.OK && total == 0 {
		s = nvml.NotSupported
	}
	put(fbTotalBytes, heelerv1.UintValue(total), s)
	if s == nvml.OK && used > total {
		s = nvml.Implausible
	}
	put(fbUsedBytes, heelerv1.UintValue(used), s)
}

func readMemoryTemperature(d nvml.Device, put put) {
	fields := []nvml.Field{{ID: nvml.FieldMemoryTemperature}}
	_ = d.Fields(fields)
	put(memTempC, heelerv1.UintValue(fields[0].Value), fields[0].Status)
}

func readRemappedRows(d nvml.Device, put put) {
	r, s := d.RemappedRows()
	put(remappedRowsCorrectable, heelerv1.UintValue(r.Correctable), s)
	put(remappedRowsUncorrectable, heelerv1.UintValue(r.Uncorrectable), s)
	put(remapPending, flag(r.Pending), s)
	put(remapFailed, flag(r.Failed), s)
}

// mostLinks is more than any GPU has; the driver says where its links end.
const mostLinks = 36

func readLinks(d nvml.Device, put put) {
	up, seen, first := uint64(0), false, nvml.NotSupported
	for link := range mostLinks {
		on, s := d.NVLinkUp(link)
		if link == 0 {
			first = s
		}
		if s == nvml.InvalidArgument || s == nvml.Lost {
			break
		}
		if s != nvml.OK {
			if seen {
				continue
			}
			break
		}
		seen = true
		if on {
			up++
		}
	}
	if seen {
		first = nvml.OK
	}
	put(nvlinkLinksUp, heelerv1.UintValue(up), first)
}
