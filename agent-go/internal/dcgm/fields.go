package dcgm

import (
	"strconv"
	"strings"
)

// field is a DCGM field that the agent asks for: its number, what its value is called on the bus, and the largest value
// that can be true. The numbers are those of dcgm_fields.h and are the same in DCGM 2, 3 and 4; DCGM 4.6 gave some of
// them other names, which don't matter here.
type field struct {
	id   int
	name string
	most float64
}

const (
	wholeTime   = 1 // a ratio
	bytesPerS   = 1 << 50
	anyCount    = 1 << 63
	highestTemp = 200
	highestW    = 20000
	highestMV   = 100000
)

// profiling are the fields of GPUs, called as the columns of a GpuSample. Source: dcgm_fields.h of DCGM 4.4, fields
// DCGM_FI_PROF_*: ratios are 0 to 1, traffic is bytes a second.
var profiling = []field{
	{1001, "graphics_active_ratio", wholeTime},
	{1002, "sm_active_ratio", wholeTime},
	{1003, "sm_occupancy_ratio", wholeTime},
	{1004, "tensor_active_ratio", wholeTime},
	{1005, "dram_active_ratio", wholeTime},
	{1006, "fp64_active_ratio", wholeTime},
	{1007, "fp32_active_ratio", wholeTime},
	{1008, "fp16_active_ratio", wholeTime},
	{1009, "pcie_tx_bytes_per_s", bytesPerS},
	{1010, "pcie_rx_bytes_per_s", bytesPerS},
	{1011, "nvlink_tx_bytes_per_s", bytesPerS},
	{1012, "nvlink_rx_bytes_per_s", bytesPerS},
	{1016, "int_active_ratio", wholeTime},
}

// ladder are the numbers that are tried one after the other where DCGM refuses more: it takes or refuses a list as a
// whole, older versions don't know 1016, and some GPUs lack a pipe or NVLink.
var ladder = [][]int{
	nil, // all that are configured
	{1001, 1002, 1003, 1004, 1005, 1009, 1010},
	{1002, 1004, 1005},
}

// switchFields and linkFields are those of NVSwitches and their links. Source: dcgm_fields.h of DCGM 4.4, fields
// DCGM_FI_DEV_NVSWITCH_*. The throughput counters go by the name raw: what they count depends on the library below
// DCGM, mebibits with NSCQ and not documented with NVSDM.
var switchFields = []field{
	{701, "voltage_mv", highestMV},
	{705, "power_vdd_w", highestW},
	{706, "power_dvdd_w", highestW},
	{707, "power_hvdd_w", highestW},
	{856, "fatal_sxid", anyCount},
	{857, "non_fatal_sxid", anyCount},
	{858, "temp_c", highestTemp},
	{859, "temp_slowdown_c", highestTemp},
	{860, "temp_shutdown_c", highestTemp},
	{861, "tx_throughput_raw", anyCount},
	{862, "rx_throughput_raw", anyCount},
	{864, "reset_required", 1},
	{866, pciDomain, 1 << 32},
	{867, pciBus, 255},
	{868, pciDevice, 31},
}

// The parts of a switch's address, which become one.
const (
	pciDomain = "pci_domain"
	pciBus    = "pci_bus"
	pciDevice = "pci_device"
)

// linkStatus is 0 for off, 1 for safe, 2 for active and 3 for error.
const linkStatus = "status"

var linkFields = []field{
	{780, "tx_throughput_raw", anyCount},
	{781, "rx_throughput_raw", anyCount},
	{782, "fatal_errors", anyCount},
	{783, "non_fatal_errors", anyCount},
	{784, "replay_errors", anyCount},
	{785, "recovery_errors", anyCount},
	{786, "flit_errors", anyCount},
	{787, "crc_errors", anyCount},
	{788, "ecc_errors", anyCount},
	{870, linkStatus, 3},
}

// Fields tells which profiling fields can be configured.
func Fields() []int {
	var ids []int
	for _, f := range profiling {
		ids = append(ids, f.id)
	}
	return ids
}

// chosen are the fields of all with these numbers, in the order of all.
func chosen(all []field, ids []int) []field {
	if ids == nil {
		return all
	}
	var some []field
	for _, f := range all {
		for _, id := range ids {
			if f.id == id {
				some = append(some, f)
			}
		}
	}
	return some
}

// list writes the numbers as dcgmi wants them.
func list(fields []field) string {
	ids := make([]string, len(fields))
	for i, f := range fields {
		ids[i] = strconv.Itoa(f.id)
	}
	return strings.Join(ids, ",")
}
