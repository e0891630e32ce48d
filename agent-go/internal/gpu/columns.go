package gpu

// column is a column of a GpuSample.
type column int

// The first columns are averages over the window: of a reading with each tick, by their nature, or of one reading. The
// last are counters and states at its end.
const (
	powerW column = iota
	powerInstantW
	tempC
	tempMarginC
	memTempC
	smClockMHz
	memClockMHz
	utilRatio
	memUtilRatio
	encoderUtilRatio
	decoderUtilRatio
	fbUsedBytes
	fbTotalBytes
	fbReservedBytes
	bar1UsedBytes
	fanRatio
	graphicsActiveRatio
	smActiveRatio
	smOccupancyRatio
	tensorActiveRatio
	dramActiveRatio
	intActiveRatio
	fp64ActiveRatio
	fp32ActiveRatio
	fp16ActiveRatio
	pcieTx
	pcieRx
	nvlinkTx
	nvlinkRx
	meanColumns // how many there are

	energyJ column = iota - 1
	powerLimitW
	powerLimitDefaultW
	powerLimitMinW
	powerLimitMaxW
	smClockMaxMHz
	memClockMaxMHz
	tempShutdownC
	tempSlowdownC
	tempGPUMaxC
	tempMemMaxC
	eccMode
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
	retiredPagesPending
	pcieGen
	pcieWidth
	pcieGenMax
	pcieWidthMax
	pcieReplays
	pcieCorrectableErrors
	pcieNonfatalErrors
	pcieFatalErrors
	pcieRecoveries
	nvlinkLinks
	nvlinkLinksUp
	nvlinkCRCErrors
	nvlinkReplayErrors
	nvlinkRecoveryErrors
	nvlinkMalformedPackets
	nvlinkBufferOverruns
	nvlinkReceiveErrors
	nvlinkRemoteErrors
	nvlinkGeneralErrors
	nvlinkIntegrityErrors
	nvlinkXmitDiscards
	nvlinkRecoveriesOK
	nvlinkRecoveriesFailed
	nvlinkRecoveryEvents
	nvlinkEffectiveErrors
	nvlinkSymbolErrors
	nvlinkEffectiveBER
	nvlinkSymbolBER
	fabricState
	fabricStatus
	clockEventReasons
	clockEventSWPowerCapNS
	clockEventSyncBoostNS
	clockEventSWThermalNS
	clockEventHWThermalNS
	clockEventHWPowerBrakeNS
	violationPowerNS
	violationThermalNS
	violationSyncBoostNS
	violationBoardLimitNS
	violationLowUtilizationNS
	violationReliabilityNS
	violationAppClocksNS
	violationBaseClocksNS
	recoveryAction
	pstate
	persistence
	migMode
	allColumns
)

// names are the columns on the bus.
var names = [allColumns]string{
	powerW: "power_w", powerInstantW: "power_instant_w", tempC: "temp_c", tempMarginC: "temp_margin_c",
	memTempC: "mem_temp_c", smClockMHz: "sm_clock_mhz", memClockMHz: "mem_clock_mhz", utilRatio: "util_ratio",
	memUtilRatio: "mem_util_ratio", encoderUtilRatio: "encoder_util_ratio", decoderUtilRatio: "decoder_util_ratio",
	fbUsedBytes: "fb_used_bytes", fbTotalBytes: "fb_total_bytes", fbReservedBytes: "fb_reserved_bytes",
	bar1UsedBytes: "bar1_used_bytes", fanRatio: "fan_ratio", graphicsActiveRatio: "graphics_active_ratio",
	smActiveRatio: "sm_active_ratio", smOccupancyRatio: "sm_occupancy_ratio",
	tensorActiveRatio: "tensor_active_ratio", dramActiveRatio: "dram_active_ratio", intActiveRatio: "int_active_ratio",
	fp64ActiveRatio: "fp64_active_ratio", fp32ActiveRatio: "fp32_active_ratio", fp16ActiveRatio: "fp16_active_ratio",
	pcieTx: "pcie_tx_bytes_per_s", pcieRx: "pcie_rx_bytes_per_s",
	nvlinkTx: "nvlink_tx_bytes_per_s", nvlinkRx: "nvlink_rx_bytes_per_s",

	energyJ: "energy_j", powerLimitW: "power_limit_w", powerLimitDefaultW: "power_limit_default_w",
	powerLimitMinW: "power_limit_min_w", powerLimitMaxW: "power_limit_max_w", smClockMaxMHz: "sm_clock_max_mhz",
	memClockMaxMHz: "mem_clock_max_mhz", tempShutdownC: "temp_shutdown_c", tempSlowdownC: "temp_slowdown_c",
	tempGPUMaxC: "temp_gpu_max_c", tempMemMaxC: "temp_mem_max_c", eccMode: "ecc_mode",
	eccCorrectedVolatile: "ecc_corrected_volatile", eccUncorrectedVolatile: "ecc_uncorrected_volatile",
	eccCorrectedAggregate: "ecc_corrected_aggregate", eccUncorrectedAggregate: "ecc_uncorrected_aggregate",
	remappedRowsCorrectable: "remapped_rows_correctable", remappedRowsUncorrectable: "remapped_rows_uncorrectable",
	remapPending: "remap_pending", remapFailed: "remap_failed", retiredPagesSBE: "retired_pages_sbe",
	retiredPagesDBE: "retired_pages_dbe", retiredPagesPending: "retired_pages_pending",
	pcieGen: "pcie_gen", pcieWidth: "pcie_width", pcieGenMax: "pcie_gen_max", pcieWidthMax: "pcie_width_max",
	pcieReplays: "pcie_replays", pcieCorrectableErrors: "pcie_correctable_errors",
	pcieNonfatalErrors: "pcie_nonfatal_errors", pcieFatalErrors: "pcie_fatal_errors", pcieRecoveries: "pcie_recoveries",
	nvlinkLinks: "nvlink_links", nvlinkLinksUp: "nvlink_links_up", nvlinkCRCErrors: "nvlink_crc_errors",
	nvlinkReplayErrors: "nvlink_replay_errors", nvlinkRecoveryErrors: "nvlink_recovery_errors",
	nvlinkMalformedPackets: "nvlink_malformed_packets", nvlinkBufferOverruns: "nvlink_buffer_overruns",
	nvlinkReceiveErrors: "nvlink_receive_errors", nvlinkRemoteErrors: "nvlink_remote_errors",
	nvlinkGeneralErrors: "nvlink_general_errors", nvlinkIntegrityErrors: "nvlink_integrity_errors",
	nvlinkXmitDiscards: "nvlink_xmit_discards", nvlinkRecoveriesOK: "nvlink_recoveries_ok",
	nvlinkRecoveriesFailed: "nvlink_recoveries_failed", nvlinkRecoveryEvents: "nvlink_recovery_events",
	nvlinkEffectiveErrors: "nvlink_effective_errors", nvlinkSymbolErrors: "nvlink_symbol_errors",
	nvlinkEffectiveBER: "nvlink_effective_ber", nvlinkSymbolBER: "nvlink_symbol_ber",
	fabricState: "fabric_state", fabricStatus: "fabric_status", clockEventReasons: "clock_event_reasons",
	clockEventSWPowerCapNS: "clock_event_sw_power_cap_ns", clockEventSyncBoostNS: "clock_event_sync_boost_ns",
	clockEventSWThermalNS: "clock_event_sw_thermal_ns", clockEventHWThermalNS: "clock_event_hw_thermal_ns",
	clockEventHWPowerBrakeNS: "clock_event_hw_power_brake_ns",
	violationPowerNS:         "violation_power_ns", violationThermalNS: "violation_thermal_ns",
	violationSyncBoostNS: "violation_sync_boost_ns", violationBoardLimitNS: "violation_board_limit_ns",
	violationLowUtilizationNS: "violation_low_utilization_ns", violationReliabilityNS: "violation_reliability_ns",
	violationAppClocksNS: "violation_app_clocks_ns", violationBaseClocksNS: "violation_base_clocks_ns",
	recoveryAction: "recovery_action", pstate: "pstate", persistence: "persistence", migMode: "mig_mode",
}

// spread are the columns whose smallest and largest reading matter.
var spread = [...]column{powerW, tempC, smClockMHz, utilRatio}
