"""Plausible messages of a node for the golden vectors: one typical value and one with every key for each type.

Everything here is made up. `vectors.py` derives the cases and writes the files.
"""

from typing import Any

U64_MAX = 18446744073709551615
BOOT = "6f1c2f0e-5a61-4d0b-9a53-0a6b5a0f3c11"
TS = 1760000000123456789
SECOND = 1_000_000_000

# Names that people really give, and the longest way from ASCII.
NODE = "gpu-a07"
UNICODE_NODE = "räck3-節点7.例え"

MEANS = {
    "power_w": 612.4,
    "temp_c": 58,
    "mem_temp_c": 71.5,
    "sm_clock_mhz": 1755,
    "mem_clock_mhz": 2619,
    "util_ratio": 0.97,
    "mem_util_ratio": 0.41,
    "sm_active_ratio": 0.885,
    "sm_occupancy_ratio": 0.3125,
    "tensor_active_ratio": 0.52,
    "dram_active_ratio": 0.375,
    "fb_used_bytes": 70_866_960_384,
    "fb_total_bytes": 85_899_345_920,
    "pcie_tx_bytes_per_s": 1_250_000.5,
    "pcie_rx_bytes_per_s": 3_800_000,
    "nvlink_tx_bytes_per_s": 91_000_000_000.25,
    "nvlink_rx_bytes_per_s": 90_500_000_000,
    "fan_ratio": 0.0,
    "power_instant_w": 633.75,
    "temp_margin_c": 29,
    "graphics_active_ratio": 0.99,
    "int_active_ratio": 0.125,
    "fp64_active_ratio": 0.0,
    "fp32_active_ratio": 0.0625,
    "fp16_active_ratio": 0.25,
    "encoder_util_ratio": 0.0,
    "decoder_util_ratio": 0.03,
    "fb_reserved_bytes": 519_045_120,
    "bar1_used_bytes": 1_048_576,
}
EXTREMES = {"power_w": 640.0, "temp_c": 60, "sm_clock_mhz": 1980, "util_ratio": 1}
LASTS = {
    "energy_j": 48_213_377.125,
    "power_limit_w": 700,
    "power_limit_default_w": 700,
    "sm_clock_max_mhz": 1980,
    "mem_clock_max_mhz": 2619,
    "temp_slowdown_c": 87,
    "ecc_corrected_volatile": 0,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 3,
    "ecc_uncorrected_aggregate": 0,
    "remapped_rows_correctable": 1,
    "remapped_rows_uncorrectable": 0,
    "remap_pending": 0,
    "remap_failed": 0,
    "retired_pages_sbe": 0,
    "retired_pages_dbe": 0,
    "pcie_gen": 5,
    "pcie_width": 16,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
    "pcie_replays": 2,
    "nvlink_crc_errors": 0,
    "nvlink_replay_errors": 0,
    "nvlink_recovery_errors": 0,
    "nvlink_links_up": 18,
    "clock_event_reasons": 4,
    "violation_thermal_ns": 0,
    "violation_power_ns": 84_211_000_000,
    "recovery_action": 0,
    "pstate": 0,
    "persistence": 1,
    "power_limit_min_w": 200,
    "power_limit_max_w": 700,
    "temp_shutdown_c": 92,
    "temp_gpu_max_c": 87,
    "temp_mem_max_c": 95,
    "clock_event_sw_power_cap_ns": 84_211_000_000,
    "clock_event_sync_boost_ns": 0,
    "clock_event_sw_thermal_ns": 0,
    "clock_event_hw_thermal_ns": 0,
    "clock_event_hw_power_brake_ns": 12_000,
    "violation_board_limit_ns": 0,
    "violation_low_utilization_ns": 0,
    "violation_reliability_ns": 0,
    "violation_sync_boost_ns": 0,
    "violation_app_clocks_ns": 1_000_000,
    "violation_base_clocks_ns": 0,
    "retired_pages_pending": 0,
    "pcie_correctable_errors": 3,
    "pcie_nonfatal_errors": 0,
    "pcie_fatal_errors": 0,
    "pcie_recoveries": 41,
    "nvlink_links": 18,
    "nvlink_malformed_packets": 0,
    "nvlink_buffer_overruns": 0,
    "nvlink_receive_errors": 0,
    "nvlink_remote_errors": 0,
    "nvlink_general_errors": 0,
    "nvlink_integrity_errors": 0,
    "nvlink_xmit_discards": 0,
    "nvlink_recoveries_ok": 1,
    "nvlink_recoveries_failed": 0,
    "nvlink_recovery_events": 1,
    "nvlink_effective_errors": 0,
    "nvlink_symbol_errors": 118,
    "nvlink_effective_ber": 1.5e-254,
    "nvlink_symbol_ber": 4.0e-11,
    "fabric_state": 3,
    "fabric_status": 0,
    "ecc_mode": 1,
    "mig_mode": 0,
}
FEW = ("power_w", "temp_c", "sm_clock_mhz", "util_ratio", "fb_used_bytes")


def uuid(i: int) -> str:
    """Return the UUID of the i-th made-up GPU."""
    return f"GPU-{0x5D1A0000 + i:08x}-77c0-4e1b-9f20-{0xA1B2C3D40000 + i:012x}"


def header(node: str = NODE, seq: int = 4711) -> dict[str, Any]:
    """Return the keys that every message of a node agent has."""
    return {"v": 1, "cluster": "north", "node": node, "ts": TS, "boot": BOOT, "seq": seq}


def spread(value: float, count: int) -> list[Any]:
    """Return a column around a value: floats stay floats, integers integers, and ratios below 1."""
    if isinstance(value, float) and value <= 1:
        return [float(f"{value * (64 - i) / 64:.4g}") for i in range(count)]
    return [value + i / 8 if isinstance(value, float) else value + i for i in range(count)]


def gpus(count: int) -> dict[str, Any]:
    """Return who the GPUs are."""
    return {
        "uuid": [uuid(i) for i in range(count)],
        "index": list(range(count)),
        "pci": [f"0000:{0x1B + 3 * i:02x}:00" for i in range(count)],
        "minor": list(range(count)),
        "model": ["NVIDIA H100 80GB HBM3"] * count,
    }


def mig_of(count: int) -> dict[str, Any]:
    """Return what MIG devices are part of: the last GPU is one of the first."""
    rest: list[Any] = [None] * (count - 1)
    return {
        "parent": [*rest, uuid(0)],
        "gi": [*rest, 7],
        "ci": [*rest, 0],
        "profile": [*rest, "1c.3g.40gb+me"],
        "power_kind": [*(["average", "instant"] * count)[: count - 1], None],
    }


def gpu_sample() -> dict[str, Any]:
    """Eight GPUs, one of which the driver has lost."""
    columns = {name: spread(MEANS[name], 8) for name in FEW}
    for column in columns.values():
        column[5] = None
    names = ("ecc_corrected_volatile", "ecc_uncorrected_volatile", "clock_event_reasons", "pcie_replays")
    return {
        **header(),
        "window_ns": 10 * SECOND,
        "reads": 10,
        "gpu": gpus(8),
        "mean": columns,
        "last": {n: [None if i == 5 else LASTS[n] for i in range(8)] for n in names},
        "absent": {"mem_temp_c": "not_supported"},
        "state": ["ok"] * 5 + ["lost"] + ["ok"] * 2,
        "procs": [[0, 20411, "81234", 68_719_476_736], [1, 20412, None, None]],
    }


def gpu_sample_maximal() -> dict[str, Any]:
    """Sixty-four GPUs, every column, counters as high as they go."""
    count = 64
    last = {name: spread(value, count) for name, value in LASTS.items()}
    for name in ("ecc_corrected_aggregate", "pcie_replays", "violation_power_ns", "clock_event_reasons"):
        last[name] = [U64_MAX] * count
    return {
        **header(UNICODE_NODE, U64_MAX),
        "window_ns": 60 * SECOND,
        "reads": 60,
        "gpu": gpus(count) | mig_of(count),
        "mean": {name: spread(value, count) for name, value in MEANS.items()},
        "min": {name: spread(value, count) for name, value in EXTREMES.items()},
        "max": {name: spread(value, count) for name, value in EXTREMES.items()},
        "last": last,
        "absent": {"fan_ratio": "not_supported", "nvlink_crc_errors": "no_permission"},
        "state": ["ok", "lost", "hung", None] * 16,
        "procs": [[i, 4_194_304 - i, f"{900_000 + i}", U64_MAX] for i in range(count)],
        "nvlinks": [[0, 17, False, {}], [1, 0, None, {}], [63, 5, True, {"crc_errors": U64_MAX, "symbol_ber": 1.5e-9}]],
    }


def job_sample() -> dict[str, Any]:
    """Eight GPUs, two jobs and an idle GPU."""
    return {
        **gpu_sample(),
        "job": ["81234"] * 4 + ["81235"] * 3 + [None],
        "job_source": [
            "process",
            "process",
            "prolog",
            "slurm_index",
            "slurm_index",
            None,
            "whole_node",
            None,
        ],
        "jobs": {
            "81234": {
                "user": "ada",
                "account": "vision",
                "partition": "h100",
                "qos": "normal",
                "name": "pretrain",
            },
            "81235": {"user": "lin", "account": "speech"},
        },
        "shard": 6,
    }


def job_sample_maximal() -> dict[str, Any]:
    """Sixty-four GPUs, all of one job with a long way from ASCII."""
    return {
        **gpu_sample_maximal(),
        "job": ["18446744073709551615"] * 63 + [None],
        "job_source": ["whole_node"] * 63 + [None],
        "jobs": {"18446744073709551615": {"user": "åse", "name": "訓練 🚀 run=1", "qos": ""}},
        "several": {"0": ["18446744073709551615", "81234"], "63": ["81234", "81235"]},
        "shard": 15,
    }


def kernel_event() -> dict[str, Any]:
    """Return an XID 79."""
    return {
        **header(),
        "kind": "xid",
        "code": 79,
        "pci": "0000:3b:00",
        "uuid": uuid(3),
        "pid": 20411,
        "comm": "python3",
        "text": "GPU has fallen off the bus.",
        "kmsg_seq": 18233,
        "ts_mono_us": 86_412_223_117,
        "witness": ["kmsg"],
        "trusted": True,
        "count": 1,
        "raw": "NVRM: Xid (PCI:0000:3b:00): 79, pid=20411, name=python3, GPU has fallen off the bus.",
        "gpu_state": "lost",
    }


def kernel_event_maximal() -> dict[str, Any]:
    """Everything that a line can be parsed into."""
    return {
        **kernel_event(),
        **header(UNICODE_NODE, U64_MAX),
        "approximate_ts": True,
        "code": 145,
        "gi": 7,
        "ci": 0,
        "comm": "训练-worker",
        "detail": {
            "link": 17,
            "registers": ["0x0", U64_MAX],
            "unit": "NETIR",
            "caused_by": None,
            "fatal": False,
        },
        "kmsg_seq": U64_MAX,
        "ts_mono_us": U64_MAX,
        "witness": ["kmsg", "nvml"],
        "trusted": False,
        "count": U64_MAX,
        "raw": "é" * 512,
        "gpu_state": "ok",
    }


JOBS_OF_EVENT: dict[str, Any] = {"jobs": ["81234"], "jobs_source": "process", "shard": 6}


def ib_sample() -> dict[str, Any]:
    """One port up, one down."""
    return {
        **header(),
        "window_ns": 10 * SECOND,
        "ports": [
            {
                "device": "mlx5_0",
                "port": 1,
                "guid": "0x58a2e10300ab12c4",
                "link_layer": "infiniband",
                "state": "active",
                "phys_state": "link_up",
                "rate_gbps": 400,
                "counters": {"port_xmit_data": 812_334_112_004, "port_rcv_data": 0, "symbol_error": 0},
            },
            {
                "device": "mlx5_1",
                "port": 1,
                "state": "down",
                "phys_state": "polling",
                "rate_gbps": 2.5,
                "absent": {"hw_counters": "not_supported"},
            },
        ],
    }


def ib_sample_maximal() -> dict[str, Any]:
    """Every key of a port, a RoCE one, with counters at their top."""
    port = {
        "device": "bnxt_re0",
        "port": 255,
        "guid": "0xffffffffffffffff",
        "netdev": "ens1f0np0",
        "link_layer": "ethernet",
        "state": "active_defer",
        "phys_state": "link_error_recovery",
        "rate_gbps": 797.5,
        "counters": {"port_xmit_data": U64_MAX, "port_rcv_data": U64_MAX, "symbol_error": 65535},
        "saturated": ["symbol_error"],
        "absent": {"out_of_buffer": "no_permission"},
        "pci": "10000:9a:00",
        "lid": 65535,
        "sm_lid": 1,
        "carrier": False,
        "operstate": "lowerlayerdown",
        "carrier_changes": U64_MAX,
        "carrier_down_count": U64_MAX,
        "speed_mbps": 400_000,
        "bond": "bond0",
    }
    slaves = [{"netdev": "ens1f0np0", "mii_status": "going back", "link_failures": U64_MAX}]
    return {
        **header(UNICODE_NODE, U64_MAX),
        "window_ns": U64_MAX,
        "ports": [port] * 16,
        "bonds": [{"name": "bond0", "mode": "802.3ad", "mii_status": "up", "slaves": slaves}],
        "absent": {"sysfs": "error"},
    }


def host_sample() -> dict[str, Any]:
    """Return a busy node without pressure information."""
    return {
        **header(),
        "window_ns": 10 * SECOND,
        "cpus": 224,
        "cpu_ratio": {"user": 0.31, "system": 0.02, "idle": 0.66, "iowait": 0.01},
        "load1": 71.5,
        "procs_running": 70,
        "memory_bytes": {"total": 2_164_663_517_184, "available": 1_800_000_000_000},
        "aer": [
            {"pci": "0000:3b:00.0", "class": "gpu", "correctable": 3, "nonfatal": 0, "fatal": 0, "errors": {"RxErr": 3}}
        ],
        "absent": {"pressure": "not_supported"},
    }


def host_sample_maximal() -> dict[str, Any]:
    """Every key, counters as high as they go."""
    pressure = {"avg10_ratio": 0.0212, "avg60_ratio": 0.5, "avg300_ratio": 1.0, "total_s": 123_456.789}
    device = {"pci": "10000:01:00.0", "class": "nvme", "parent": "10000:00:01.0", "errors": {"BadTLP": U64_MAX}}
    return {
        **host_sample(),
        **header(UNICODE_NODE, U64_MAX),
        "window_ns": U64_MAX,
        "load5": 0.25,
        "load15": 0,
        "procs_blocked": 7,
        "threads_uninterruptible": 3,
        "uninterruptible": [{"pid": 4_194_304, "comm": "训练-worker", "job_id": "81234"}],
        "memory_bytes": {"total": U64_MAX, "swap_free": 0},
        "pressure": {"memory_full": pressure, "io_some": pressure},
        "aer": [{**device, "correctable": U64_MAX, "nonfatal": 0, "fatal": 0}] * 16,
        "absent": {"aer": "no_permission"},
    }


def switch_sample() -> dict[str, Any]:
    """Return one switch and one of its links."""
    return {
        **header(),
        "window_ns": 30 * SECOND,
        "switches": [{"switch": 0, "values": {"temp_c": 41}}],
        "links": [{"switch": 0, "link": 33, "values": {"tx_bytes_per_s": 41_000_000_000.5}}],
    }


def switch_sample_maximal() -> dict[str, Any]:
    """Every key of a switch and of a link."""
    one = {
        "switch": 5,
        "uuid": "SWX-5d1a0000",
        "pci": "0000:c4:00",
        "values": {"power_w": 81.25, "fatal_errors": U64_MAX},
    }
    return {
        **switch_sample(),
        **header(UNICODE_NODE, U64_MAX),
        "switches": [one] * 6,
        "links": [{"switch": 5, "link": 63, "values": {}}],
        "absent": {"voltage_v": "not_supported"},
    }


def agent_status() -> dict[str, Any]:
    """One collector works, one has nothing to read."""
    return {
        **header(),
        "version": "0.1.0",
        "started_ts": TS - 3600 * SECOND,
        "interval_ns": 60 * SECOND,
        "inventory": "b5bb9d8014a0f9b1",
        "collectors": {
            "nvml": {
                "state": "ok",
                "last_success_ts": TS,
                "duration_ns": 4_100_000,
                "readings": 3600,
                "failures": 0,
            },
            "infiniband": {"state": "absent", "why": "no /sys/class/infiniband"},
        },
        "dropped_samples": 0,
        "cpu_s": 12.75,
        "rss_bytes": 23_068_672,
    }


def agent_status_maximal() -> dict[str, Any]:
    """Every key, a clock behind, a spool that is full."""
    return {
        **agent_status(),
        **header(UNICODE_NODE, U64_MAX),
        "clock_offset_ns": -86_400_000_000_000,
        "clock_offset_error_ns": 250_000,
        "collectors": {
            "nvml": {
                "state": "hung",
                "why": "nvmlDeviceGetSamples läuft noch",
                "last_success_ts": TS,
                "duration_ns": U64_MAX,
                "readings": U64_MAX,
                "failures": U64_MAX,
                "skipped": U64_MAX,
                "counts": {"rejected": U64_MAX},
            },
        },
        "dropped_samples": U64_MAX,
        "spool_events": 100_000,
        "spool_bytes": U64_MAX,
        "dropped_events": U64_MAX,
        "cpu_s": 86400,
        "rss_bytes": U64_MAX,
        "goroutines": 41,
        "open_fds": U64_MAX,
    }


def inventory() -> dict[str, Any]:
    """Two GPUs and an HCA."""
    return {
        **header(),
        "digest": "b5bb9d8014a0f9b1",
        "driver": "570.86.15",
        "cuda": "12.8",
        "gpus": [
            {
                "uuid": uuid(i),
                "index": i,
                "pci": f"0000:{0x1B + i:02x}:00",
                "minor": i,
                "model": "NVIDIA H100",
            }
            for i in range(2)
        ],
        "hcas": [{"device": "mlx5_0", "port": 1, "guid": "0x58a2e10300ab12c4", "link_layer": "infiniband"}],
    }


def inventory_maximal() -> dict[str, Any]:
    """Every key of a GPU and of an HCA."""
    gpu = {
        "serial": "1650523012345",
        "vbios": "96.00.74.00.01",
        "fb_total_bytes": U64_MAX,
        "mig": True,
        "numa": -1,
        "architecture": "hopper",
        "board_part": "692-2G520-0200-000",
        "mig_devices": [{"uuid": "MIG-5d1a0000", "gi": 7, "ci": 0, "profile": "1g.10gb", "fb_total_bytes": U64_MAX}],
        "nvlinks": [{"link": 17, "version": 5, "remote_pci": "0000:c4:00", "remote_type": "switch"}],
    }
    hca = {
        "device": "bnxt_re0",
        "port": 1,
        "guid": "0x1",
        "firmware": "231.2.63.0",
        "board": "BRCM°",
        "pci": "0000:9a:00",
    }
    base = gpus(64)
    return {
        **inventory(),
        **header(UNICODE_NODE, U64_MAX),
        "nvml": "12.570.86.15",
        "kernel": "6.8.0-51-generic",
        "gpus": [{key: base[key][i] for key in base} | gpu for i in range(64)],
        "hcas": [{**hca, "link_layer": "ethernet", "rate_gbps": 99.5}],
    }


def prolog_event() -> dict[str, Any]:
    """Return the begin of a job on two GPUs."""
    return {**header(), "event": "started", "job_id": "81234", "uuids": [uuid(0), uuid(1)], "indices": [0, 1]}


def prolog_event_maximal() -> dict[str, Any]:
    """Return the end of a job on 64 GPUs."""
    uuids = [uuid(i) for i in range(64)]
    head = header(UNICODE_NODE, U64_MAX)
    return {**head, "event": "ended", "job_id": "4294967294_7+1", "uuids": uuids, "indices": list(range(64))}
