/* Every number a scenario can set, in one table.
 *
 * FIELD(id, unit, idle value, group, flags): `id` and `id unit` are both accepted in a scenario, so power and power_w are one.
 * `group` is another id whose error, hang or "unsupported" covers this field as well. NAN means not supported.
 * A CALL has no value of its own: its name is there to make calls fail or hang (handle, pci, processes ...). */
#ifndef FIELDS_H
#define FIELDS_H

#include <math.h>

enum { PLAIN = 0, NOISY = 1, CALL = 2 };

#define FIELDS(FIELD) \
    FIELD(all, "", NAN, all, CALL) \
    FIELD(handle, "", NAN, all, CALL) \
    FIELD(index, "", NAN, all, CALL) \
    FIELD(name, "", NAN, all, CALL) \
    FIELD(uuid, "", NAN, all, CALL) \
    FIELD(serial, "", NAN, all, CALL) \
    FIELD(vbios, "", NAN, all, CALL) \
    FIELD(part_number, "", NAN, all, CALL) \
    FIELD(minor, "", NAN, all, PLAIN) \
    FIELD(pci, "", NAN, all, CALL) \
    FIELD(architecture, "", NAN, all, CALL) \
    FIELD(brand, "", NAN, all, CALL) \
    FIELD(cuda_capability, "", NAN, all, CALL) \
    FIELD(fields, "", NAN, all, CALL) \
    FIELD(events, "", NAN, all, CALL) \
    FIELD(processes, "", NAN, all, CALL) \
    FIELD(graphics_processes, "", NAN, all, CALL) \
    FIELD(attributes, "", NAN, all, CALL) \
    FIELD(power, "_w", 72, all, NOISY) \
    FIELD(power_average, "_w", NAN, power, NOISY) \
    FIELD(power_instant, "_w", NAN, power, NOISY) \
    FIELD(power_limits, "", NAN, all, CALL) \
    FIELD(power_limit, "_w", 700, power_limits, PLAIN) \
    FIELD(power_limit_default, "_w", 700, power_limits, PLAIN) \
    FIELD(power_limit_requested, "_w", NAN, power_limits, PLAIN) \
    FIELD(power_limit_min, "_w", 200, power_limits, PLAIN) \
    FIELD(power_limit_max, "_w", 700, power_limits, PLAIN) \
    FIELD(power_management, "", 1, power_limits, PLAIN) \
    FIELD(energy, "_mj", NAN, all, PLAIN) \
    FIELD(temp, "_c", 31, all, NOISY) \
    FIELD(mem_temp, "_c", 39, all, NOISY) \
    FIELD(temp_margin, "_c", NAN, all, PLAIN) \
    FIELD(temp_thresholds, "", NAN, all, CALL) \
    FIELD(temp_shutdown, "_c", 92, temp_thresholds, PLAIN) \
    FIELD(temp_slowdown, "_c", 89, temp_thresholds, PLAIN) \
    FIELD(temp_mem_max, "_c", 95, temp_thresholds, PLAIN) \
    FIELD(temp_gpu_max, "_c", 87, temp_thresholds, PLAIN) \
    FIELD(tlimit_shutdown, "_c", -8, temp_thresholds, PLAIN) \
    FIELD(tlimit_slowdown, "_c", -2, temp_thresholds, PLAIN) \
    FIELD(tlimit_mem_max, "_c", 0, temp_thresholds, PLAIN) \
    FIELD(tlimit_gpu_max, "_c", 0, temp_thresholds, PLAIN) \
    FIELD(clocks, "", NAN, all, CALL) \
    FIELD(graphics_clock, "_mhz", NAN, clocks, PLAIN) \
    FIELD(sm_clock, "_mhz", 345, clocks, PLAIN) \
    FIELD(mem_clock, "_mhz", 2619, clocks, PLAIN) \
    FIELD(video_clock, "_mhz", 765, clocks, PLAIN) \
    FIELD(max_clocks, "", NAN, all, CALL) \
    FIELD(graphics_clock_max, "_mhz", NAN, max_clocks, PLAIN) \
    FIELD(sm_clock_max, "_mhz", 1980, max_clocks, PLAIN) \
    FIELD(mem_clock_max, "_mhz", 2619, max_clocks, PLAIN) \
    FIELD(video_clock_max, "_mhz", 1545, max_clocks, PLAIN) \
    FIELD(app_clocks, "", NAN, all, CALL) \
    FIELD(app_graphics_clock, "_mhz", NAN, app_clocks, PLAIN) \
    FIELD(app_sm_clock, "_mhz", NAN, app_clocks, PLAIN) \
    FIELD(app_mem_clock, "_mhz", NAN, app_clocks, PLAIN) \
    FIELD(utilization, "", NAN, all, CALL) \
    FIELD(util, "_pct", 0, utilization, NOISY) \
    FIELD(mem_util, "_pct", 0, utilization, NOISY) \
    FIELD(encoder_util, "_pct", 0, all, PLAIN) \
    FIELD(decoder_util, "_pct", 0, all, PLAIN) \
    FIELD(pstate, "", 0, all, PLAIN) \
    FIELD(persistence, "", 1, all, PLAIN) \
    FIELD(compute_mode, "", 0, all, PLAIN) \
    FIELD(display, "", 0, all, PLAIN) \
    FIELD(ecc_mode, "", 1, all, PLAIN) \
    FIELD(ecc_mode_pending, "", 1, ecc_mode, PLAIN) \
    FIELD(ecc, "", NAN, all, CALL) \
    FIELD(ecc_corrected_volatile, "", 0, ecc, PLAIN) \
    FIELD(ecc_uncorrected_volatile, "", 0, ecc, PLAIN) \
    FIELD(ecc_corrected_aggregate, "", 0, ecc, PLAIN) \
    FIELD(ecc_uncorrected_aggregate, "", 0, ecc, PLAIN) \
    FIELD(remapped_rows, "", NAN, all, CALL) \
    FIELD(remapped_rows_correctable, "", 0, remapped_rows, PLAIN) \
    FIELD(remapped_rows_uncorrectable, "", 0, remapped_rows, PLAIN) \
    FIELD(remap_pending, "", 0, remapped_rows, PLAIN) \
    FIELD(remap_failed, "", 0, remapped_rows, PLAIN) \
    FIELD(retired_pages, "", NAN, all, CALL) \
    FIELD(retired_pages_sbe, "", NAN, retired_pages, PLAIN) \
    FIELD(retired_pages_dbe, "", NAN, retired_pages, PLAIN) \
    FIELD(retired_pending, "", NAN, retired_pages, PLAIN) \
    FIELD(clock_event_reasons, "", 0x1, all, PLAIN) \
    FIELD(supported_clock_event_reasons, "", 0x1FF, all, PLAIN) \
    FIELD(violations, "", NAN, all, CALL) \
    FIELD(violation_power, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_thermal, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_sync_boost, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_board_limit, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_low_utilization, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_reliability, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_app_clocks, "_ns", NAN, violations, PLAIN) \
    FIELD(violation_base_clocks, "_ns", NAN, violations, PLAIN) \
    FIELD(event_sw_thermal, "_ns", NAN, violations, PLAIN) \
    FIELD(event_hw_thermal, "_ns", NAN, violations, PLAIN) \
    FIELD(event_hw_power_brake, "_ns", NAN, violations, PLAIN) \
    FIELD(memory, "", NAN, all, CALL) \
    FIELD(fb_total, "_bytes", 85520809984, memory, PLAIN) \
    FIELD(fb_used, "_bytes", 4194304, memory, PLAIN) \
    FIELD(fb_reserved, "_bytes", 519045120, memory, PLAIN) \
    FIELD(bar1, "", NAN, all, CALL) \
    FIELD(bar1_total, "_bytes", 137438953472, bar1, PLAIN) \
    FIELD(bar1_used, "_bytes", 1048576, bar1, PLAIN) \
    FIELD(pcie_gen, "", 5, all, PLAIN) \
    FIELD(pcie_width, "", 16, all, PLAIN) \
    FIELD(pcie_gen_max, "", 5, all, PLAIN) \
    FIELD(pcie_width_max, "", 16, all, PLAIN) \
    FIELD(pcie_throughput, "", NAN, all, CALL) \
    FIELD(pcie_tx, "_mib_s", 0, pcie_throughput, NOISY) \
    FIELD(pcie_rx, "_mib_s", 0, pcie_throughput, NOISY) \
    FIELD(pcie_tx_total, "_bytes", NAN, pcie_throughput, PLAIN) \
    FIELD(pcie_rx_total, "_bytes", NAN, pcie_throughput, PLAIN) \
    FIELD(pcie_replays, "", 0, all, PLAIN) \
    FIELD(pcie_replay_rollovers, "", 0, pcie_replays, PLAIN) \
    FIELD(pcie_errors, "", NAN, all, CALL) \
    FIELD(pcie_recoveries, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_correctable_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_naks_received, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_receiver_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_bad_tlp, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_naks_sent, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_bad_dllp, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_nonfatal_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_fatal_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_unsupported_requests, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_lcrc_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(pcie_lane_errors, "", 0, pcie_errors, PLAIN) \
    FIELD(fan, "_pct", NAN, all, PLAIN) \
    FIELD(nvlink, "", NAN, all, CALL) \
    FIELD(nvlink_state, "", NAN, nvlink, CALL) \
    FIELD(nvlink_errors, "", NAN, nvlink, CALL) \
    FIELD(nvlink_throughput, "", NAN, nvlink, CALL) \
    FIELD(nvlink_tx, "_mib_s", 0, nvlink_throughput, NOISY) \
    FIELD(nvlink_rx, "_mib_s", 0, nvlink_throughput, NOISY) \
    FIELD(nvlink_tx_total, "_kib", NAN, nvlink_throughput, PLAIN) \
    FIELD(nvlink_rx_total, "_kib", NAN, nvlink_throughput, PLAIN) \
    FIELD(fabric, "", NAN, all, CALL) \
    FIELD(fabric_state, "", 3, fabric, PLAIN) \
    FIELD(fabric_status, "", 0, fabric, PLAIN) \
    FIELD(fabric_health_mask, "", 2, fabric, PLAIN) \
    FIELD(recovery_action, "", 0, all, PLAIN) \
    FIELD(mig_mode, "", 0, all, PLAIN) \
    FIELD(mig_mode_pending, "", NAN, mig_mode, PLAIN) \
    FIELD(gpm, "", NAN, all, CALL) \
    FIELD(graphics_active, "_pct", 0, gpm, NOISY) \
    FIELD(sm_active, "_pct", 0, gpm, NOISY) \
    FIELD(sm_occupancy, "_pct", 0, gpm, NOISY) \
    FIELD(integer_active, "_pct", 0, gpm, NOISY) \
    FIELD(tensor_active, "_pct", 0, gpm, NOISY) \
    FIELD(dfma_active, "_pct", 0, gpm, NOISY) \
    FIELD(hmma_active, "_pct", 0, gpm, NOISY) \
    FIELD(dmma_active, "_pct", 0, gpm, NOISY) \
    FIELD(imma_active, "_pct", 0, gpm, NOISY) \
    FIELD(dram_active, "_pct", 0, gpm, NOISY) \
    FIELD(fp64_active, "_pct", 0, gpm, NOISY) \
    FIELD(fp32_active, "_pct", 0, gpm, NOISY) \
    FIELD(fp16_active, "_pct", 0, gpm, NOISY)

#define FIELD_ENUM(id, unit, idle, group, flags) F_##id,
enum field { FIELDS(FIELD_ENUM) F_COUNT };
#undef FIELD_ENUM

struct field_info {
    const char *name, *unit;
    double idle;
    enum field group;
    int flags;
};
extern const struct field_info field_info[F_COUNT];

/* What one NVLink counts; a scenario sets it with `GPU nvlink LINK NAME VALUE`. */
#define LINK_FIELDS(LINK) \
    LINK(up) LINK(state_error) LINK(count_error) LINK(replay) LINK(recovery) LINK(crc_flit) LINK(crc_data) LINK(ecc_data) \
    LINK(malformed) LINK(buffer_overrun) LINK(rcv_errors) LINK(remote_errors) LINK(general_errors) \
    LINK(integrity_errors) LINK(xmit_discards) LINK(recovery_ok) LINK(recovery_failed) LINK(recovery_events) \
    LINK(effective_errors) LINK(effective_ber) LINK(symbol_errors) LINK(symbol_ber)

#define LINK_ENUM(id) L_##id,
enum link_field { LINK_FIELDS(LINK_ENUM) L_COUNT };
#undef LINK_ENUM
extern const char *const link_field_name[L_COUNT];

#endif
