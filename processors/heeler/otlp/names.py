"""What each column is called outside: one table, column to metric.

Names, units and instruments are those of the OpenTelemetry semantic conventions for hardware (``hw.*``) where
there is one, and ``heeler.*`` otherwise. The conventions count bytes through a GPU (``hw.gpu.io``, a counter); agents
read rates, and a total summed up from rates would be invented, and several exporters that share a stream would each
have a part of it. So rates stay rates under our own name.

What adds up over GPUs (memory, energy, errors, power) has a name of its own for a MIG device, ``heeler.mig.*``: its GPU
has a row too, and a sum over ``hw.gpu.*`` must not count a byte twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"


class Kind(Enum):
    """An instrument: how its numbers add up over time."""

    GAUGE = "gauge"
    COUNTER = "counter"  # cumulative, monotonic
    UPDOWN = "updowncounter"  # cumulative, not monotonic: a level that may be summed over components


@dataclass(frozen=True, slots=True)
class Metric:
    """Where a column goes.

    ``attributes`` tell apart columns that share a name. A column's values times ``scale`` are in ``unit`` (UCUM).
    """

    name: str
    unit: str
    kind: Kind = Kind.GAUGE
    attributes: tuple[tuple[str, str], ...] = ()
    scale: float | None = None
    integer: bool = False


Tags = Mapping[str, str]


def _gauge(name: str, unit: str, tags: Tags | None = None, scale: float | None = None) -> Metric:
    return Metric(name, unit, Kind.GAUGE, tuple((tags or {}).items()), scale)


def _state(name: str, unit: str = "1") -> Metric:
    return Metric(name, unit, Kind.GAUGE, integer=True)


def _counter(name: str, unit: str, tags: Tags | None = None, scale: float | None = None) -> Metric:
    return Metric(name, unit, Kind.COUNTER, tuple((tags or {}).items()), scale, integer=scale is None and unit != "J")


def _level(name: str, unit: str, tags: Tags | None = None) -> Metric:
    return Metric(name, unit, Kind.UPDOWN, tuple((tags or {}).items()), integer=True)


def _error(kind: str) -> Tags:
    return {"error.type": kind}


def _pipe(name: str) -> Tags:
    return {"heeler.gpu.pipe": name}


MHZ, NS, GBPS = 1e6, 1e-9, 1e9 / 8
CORE, MEMORY = {"hw.sensor_location": "gpu"}, {"hw.sensor_location": "memory"}
SM, MEM = {"heeler.clock.domain": "sm"}, {"heeler.clock.domain": "memory"}
TX, RX = {"network.io.direction": "transmit"}, {"network.io.direction": "receive"}

_EXTREMES = {
    "power_w": ("heeler.gpu.power", "W", None),
    "temp_c": ("heeler.gpu.temperature", "Cel", None),
    "sm_clock_mhz": ("heeler.gpu.clock.frequency", "Hz", MHZ),
    "util_ratio": ("heeler.gpu.utilization", "1", None),
}

GPU: Final[Mapping[str, Mapping[str, Metric]]] = {
    "mean": {
        "power_w": _gauge("hw.power", "W"),
        "temp_c": _gauge("hw.temperature", "Cel", CORE),
        "mem_temp_c": _gauge("hw.temperature", "Cel", MEMORY),
        "sm_clock_mhz": _gauge("heeler.gpu.clock.frequency", "Hz", SM, MHZ),
        "mem_clock_mhz": _gauge("heeler.gpu.clock.frequency", "Hz", MEM, MHZ),
        "util_ratio": _gauge("hw.gpu.utilization", "1", {"hw.gpu.task": "general"}),
        "mem_util_ratio": _gauge("heeler.gpu.memory.busy", "1"),
        "sm_active_ratio": _gauge("heeler.gpu.sm.active", "1"),
        "sm_occupancy_ratio": _gauge("heeler.gpu.sm.occupancy", "1"),
        "tensor_active_ratio": _gauge("heeler.gpu.tensor.active", "1"),
        "dram_active_ratio": _gauge("heeler.gpu.dram.active", "1"),
        "fb_used_bytes": _level("hw.gpu.memory.usage", "By"),
        "fb_total_bytes": _level("hw.gpu.memory.limit", "By"),
        "pcie_tx_bytes_per_s": _gauge("heeler.gpu.pcie.throughput", "By/s", TX),
        "pcie_rx_bytes_per_s": _gauge("heeler.gpu.pcie.throughput", "By/s", RX),
        "nvlink_tx_bytes_per_s": _gauge("heeler.gpu.nvlink.throughput", "By/s", TX),
        "nvlink_rx_bytes_per_s": _gauge("heeler.gpu.nvlink.throughput", "By/s", RX),
        "fan_ratio": _gauge("hw.fan.speed_ratio", "1"),
        "power_instant_w": _gauge("heeler.gpu.power.instant", "W"),
        "temp_margin_c": _gauge("heeler.gpu.temperature.margin", "Cel", CORE),
        "graphics_active_ratio": _gauge("heeler.gpu.graphics.active", "1"),
        "int_active_ratio": _gauge("heeler.gpu.pipe.active", "1", _pipe("int")),
        "fp64_active_ratio": _gauge("heeler.gpu.pipe.active", "1", _pipe("fp64")),
        "fp32_active_ratio": _gauge("heeler.gpu.pipe.active", "1", _pipe("fp32")),
        "fp16_active_ratio": _gauge("heeler.gpu.pipe.active", "1", _pipe("fp16")),
        "encoder_util_ratio": _gauge("hw.gpu.utilization", "1", {"hw.gpu.task": "encoder"}),
        "decoder_util_ratio": _gauge("hw.gpu.utilization", "1", {"hw.gpu.task": "decoder"}),
        "fb_reserved_bytes": _level("heeler.gpu.memory.reserved", "By"),
        "bar1_used_bytes": _level("heeler.gpu.bar1.usage", "By"),
    },
    "min": {column: _gauge(f"{name}.min", unit, None, scale) for column, (name, unit, scale) in _EXTREMES.items()},
    "max": {column: _gauge(f"{name}.max", unit, None, scale) for column, (name, unit, scale) in _EXTREMES.items()},
    "last": {
        "energy_j": _counter("hw.energy", "J"),
        "power_limit_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "enforced"}),
        "power_limit_default_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "default"}),
        "power_limit_min_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "min"}),
        "power_limit_max_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "max"}),
        "sm_clock_max_mhz": _gauge("heeler.gpu.clock.limit", "Hz", {"hw.limit_type": "max", **SM}, MHZ),
        "mem_clock_max_mhz": _gauge("heeler.gpu.clock.limit", "Hz", {"hw.limit_type": "max", **MEM}, MHZ),
        "temp_slowdown_c": _gauge("hw.temperature.limit", "Cel", {"hw.limit_type": "throttled", **CORE}),
        "temp_shutdown_c": _gauge("hw.temperature.limit", "Cel", {"hw.limit_type": "critical", **CORE}),
        "temp_gpu_max_c": _gauge("hw.temperature.limit", "Cel", {"hw.limit_type": "max", **CORE}),
        "temp_mem_max_c": _gauge("hw.temperature.limit", "Cel", {"hw.limit_type": "max", **MEMORY}),
        # Volatile and aggregate counts overlap, so only one of them may be hw.errors.
        "ecc_corrected_volatile": _counter("hw.errors", "{error}", _error("corrected")),
        "ecc_uncorrected_volatile": _counter("hw.errors", "{error}", _error("uncorrected")),
        "ecc_corrected_aggregate": _counter("heeler.gpu.ecc.lifetime_errors", "{error}", _error("corrected")),
        "ecc_uncorrected_aggregate": _counter("heeler.gpu.ecc.lifetime_errors", "{error}", _error("uncorrected")),
        "remapped_rows_correctable": _counter("heeler.gpu.remapped_rows", "{row}", _error("correctable")),
        "remapped_rows_uncorrectable": _counter("heeler.gpu.remapped_rows", "{row}", _error("uncorrectable")),
        "remap_pending": _state("heeler.gpu.remap.pending"),
        "remap_failed": _state("heeler.gpu.remap.failed"),
        "retired_pages_sbe": _counter("heeler.gpu.retired_pages", "{page}", _error("single_bit")),
        "retired_pages_dbe": _counter("heeler.gpu.retired_pages", "{page}", _error("double_bit")),
        "retired_pages_pending": _state("heeler.gpu.retired_pages.pending"),
        "pcie_gen": _state("heeler.gpu.pcie.generation"),
        "pcie_width": _state("heeler.gpu.pcie.width", "{lane}"),
        "pcie_gen_max": _state("heeler.gpu.pcie.generation.limit"),
        "pcie_width_max": _state("heeler.gpu.pcie.width.limit", "{lane}"),
        "pcie_replays": _counter("heeler.gpu.pcie.replays", "{replay}"),
        "pcie_correctable_errors": _counter("heeler.gpu.pcie.errors", "{error}", _error("correctable")),
        "pcie_nonfatal_errors": _counter("heeler.gpu.pcie.errors", "{error}", _error("nonfatal")),
        "pcie_fatal_errors": _counter("heeler.gpu.pcie.errors", "{error}", _error("fatal")),
        "pcie_recoveries": _counter("heeler.gpu.pcie.recoveries", "{recovery}"),
        "nvlink_crc_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("crc")),
        "nvlink_replay_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("replay")),
        "nvlink_recovery_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("recovery")),
        "nvlink_integrity_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("integrity")),
        "nvlink_links_up": _state("heeler.gpu.nvlink.links_up", "{link}"),
        "nvlink_links": _state("heeler.gpu.nvlink.links", "{link}"),
        "nvlink_malformed_packets": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("malformed")),
        "nvlink_buffer_overruns": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("buffer_overrun")),
        "nvlink_receive_errors": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("receive")),
        "nvlink_remote_errors": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("remote")),
        "nvlink_general_errors": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("general")),
        "nvlink_xmit_discards": _counter("heeler.gpu.nvlink.bad_packets", "{packet}", _error("xmit_discard")),
        "nvlink_recovery_events": _counter("heeler.gpu.nvlink.recovery.starts", "{recovery}"),
        "nvlink_recoveries_ok": _counter("heeler.gpu.nvlink.recoveries", "{recovery}", {"heeler.outcome": "ok"}),
        "nvlink_recoveries_failed": _counter(
            "heeler.gpu.nvlink.recoveries", "{recovery}", {"heeler.outcome": "failed"}
        ),
        # Symbol errors are what correction is for; the effective ones are those of them that it left.
        "nvlink_symbol_errors": _counter("heeler.gpu.nvlink.symbol_errors", "{error}"),
        "nvlink_effective_errors": _counter("heeler.gpu.nvlink.effective_errors", "{error}"),
        "nvlink_symbol_ber": _gauge("heeler.gpu.nvlink.symbol_errors.ratio", "1"),
        "nvlink_effective_ber": _gauge("heeler.gpu.nvlink.effective_errors.ratio", "1"),
        "fabric_state": _state("heeler.gpu.fabric.state"),
        "fabric_status": _state("heeler.gpu.fabric.status"),
        "clock_event_reasons": _state("heeler.gpu.clock.event_reasons"),
        **{
            f"clock_event_{event}_ns": _counter("heeler.gpu.clock.event.time", "s", {"heeler.clock.event": event}, NS)
            for event in ("sw_power_cap", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake")
        },
        **{
            f"violation_{cause}_ns": _counter("heeler.gpu.slowdown.time", "s", {"heeler.slowdown.cause": cause}, NS)
            for cause in ("thermal", "power", "board_limit", "low_utilization", "reliability", "sync_boost")
        },
        # Time below a clock whatever the cause, which is in the causes above too.
        **{
            f"violation_{clocks}_ns": _counter("heeler.gpu.below_clocks.time", "s", {"heeler.clocks": clocks}, NS)
            for clocks in ("app_clocks", "base_clocks")
        },
        "recovery_action": _state("heeler.gpu.recovery_action"),
        "pstate": _state("heeler.gpu.performance_state"),
        "persistence": _state("heeler.gpu.persistence_mode"),
        "ecc_mode": _state("heeler.gpu.ecc.mode"),
        "mig_mode": _state("heeler.gpu.mig.mode"),
    },
}

# The unit has no suffix in Prometheus: heeler_gpu_job_info.
JOB_INFO: Final = _state("heeler.gpu.job.info", "{job}")
MEMORY_UTILIZATION: Final = _gauge("hw.gpu.memory.utilization", "1")
LINK_UP: Final = _state("heeler.gpu.nvlink.link.up")
STATUS_OK: Final = _level("hw.status", "1", {"hw.state": "ok"})
STATUS_FAILED: Final = _level("hw.status", "1", {"hw.state": "failed"})

IB: Final[Mapping[str, Metric]] = {
    "port_xmit_data": _counter("hw.network.io", "By", TX),
    "port_rcv_data": _counter("hw.network.io", "By", RX),
    "port_xmit_packets": _counter("hw.network.packets", "{packet}", TX),
    "port_rcv_packets": _counter("hw.network.packets", "{packet}", RX),
    **{
        name: _counter("hw.errors", "{error}", {**_error(name.lower()), **direction})
        for direction, names in (
            (TX, ("port_xmit_discards", "port_xmit_constraint_errors")),
            (
                RX,
                (
                    "port_rcv_errors",
                    "port_rcv_remote_physical_errors",
                    "port_rcv_switch_relay_errors",
                    "port_rcv_constraint_errors",
                ),
            ),
            (
                {},
                (
                    "symbol_error",
                    "link_error_recovery",
                    "link_downed",
                    "local_link_integrity_errors",
                    "excessive_buffer_overrun_errors",
                    "VL15_dropped",
                ),
            ),
        )
        for name in names
    },
    "port_xmit_wait": _counter("heeler.network.xmit_wait", "{tick}"),
}
PORT: Final[Mapping[str, Metric]] = {
    "carrier": _state("heeler.network.carrier"),
    "carrier_changes": _counter("heeler.network.carrier.changes", "{change}"),
    "carrier_down_count": _counter("heeler.network.carrier.losses", "{change}"),
    "speed_mbps": _gauge("heeler.network.interface.speed", "By/s", None, MHZ / 8),
}
BOND: Final[Mapping[str, Metric]] = {
    "up": _state("heeler.network.bond.up"),
    "link_failures": _counter("heeler.network.bond.link_failures", "{failure}"),
}
NETWORK_UP: Final = _level("hw.network.up", "1")
NETWORK_LIMIT: Final = Metric("hw.network.bandwidth.limit", "By/s", Kind.UPDOWN, scale=GBPS)

AGENT: Final[Mapping[str, Metric]] = {
    "dropped_samples": _counter("heeler.agent.dropped_samples", "{sample}"),
    "dropped_events": _counter("heeler.agent.dropped_events", "{event}"),
    "spool_events": _level("heeler.agent.spool.events", "{event}"),
    "spool_bytes": _level("heeler.agent.spool.size", "By"),
    "cpu_s": Metric("heeler.agent.cpu.time", "s", Kind.COUNTER),
    "rss_bytes": _level("heeler.agent.memory.usage", "By"),
    "goroutines": _level("heeler.agent.goroutines", "{goroutine}"),
    "open_fds": _level("heeler.agent.open_files", "{file}"),
    "clock_offset_ns": _gauge("heeler.agent.clock.offset", "s", None, NS),
    "clock_offset_error_ns": _gauge("heeler.agent.clock.offset.error", "s", None, NS),
}
COLLECTOR: Final[Mapping[str, Metric]] = {
    "readings": _counter("heeler.agent.collector.readings", "{reading}"),
    "failures": _counter("heeler.agent.collector.failures", "{reading}"),
    "skipped": _counter("heeler.agent.collector.skipped", "{reading}"),
    "duration_ns": _gauge("heeler.agent.collector.duration", "s", None, NS),
    "last_success_ts": _gauge("heeler.agent.collector.last_success", "s", None, NS),
}
COLLECTOR_UP: Final = _state("heeler.agent.collector.up")

_SUFFIXES = (
    ("_bytes_per_s", "By/s", None),
    ("_bytes", "By", None),
    ("_mhz", "Hz", MHZ),
    ("_ratio", "1", None),
    ("_ns", "s", NS),
    ("_w", "W", None),
    ("_c", "Cel", None),
    ("_j", "J", None),
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_PREFIX = {"mean": "heeler.gpu.", "last": "heeler.gpu.", "min": "heeler.gpu.min.", "max": "heeler.gpu.max."}


def unlisted(group: str, column: str) -> Metric | None:
    """Return a metric for a column that the table doesn't know: a newer agent's. None if it can't be a name.

    Its unit is read from the name. It is a gauge, since whether it only ever grows is not known.
    """
    if not _NAME.match(column):
        return None
    for suffix, unit, scale in _SUFFIXES:
        if column.endswith(suffix) and len(column) > len(suffix):
            return Metric(_PREFIX[group] + column.removesuffix(suffix), unit, scale=scale)
    return Metric(_PREFIX[group] + column, "1")


@lru_cache(maxsize=1024)
def of_kind(metric: Metric, key: str, value: str) -> Metric:
    """Return a metric with one more attribute of its own."""
    return replace(metric, attributes=(*metric.attributes, (key, value)))


def adds_up(metric: Metric) -> bool:
    """Say whether a metric is summed over GPUs, so that a part of one must not count beside the whole."""
    return metric.kind is not Kind.GAUGE or metric.name == "hw.power"


@lru_cache(maxsize=1024)
def of_mig(metric: Metric) -> Metric:
    """Return the metric that a MIG device has in place of one that adds up over GPUs."""
    name = metric.name
    for prefix in ("hw.gpu.", "heeler.gpu.", "hw."):
        if name.startswith(prefix):
            return replace(metric, name=f"heeler.mig.{name.removeprefix(prefix)}")
    return metric


@lru_cache(maxsize=1024)
def of_link(counter: str) -> Metric | None:
    """Return the metric of one NVLink's counter: named as the GPU's, which is the sum of its links."""
    metric = GPU["last"].get(f"nvlink_{counter}") or unlisted("last", f"nvlink_{counter}")
    if metric is None:
        return None
    known = metric.name.removeprefix("heeler.gpu.nvlink").lstrip("._")
    return replace(metric, name=f"heeler.gpu.nvlink.link.{known}")


def unlisted_counter(counter: str) -> Metric | None:
    """Return a metric for a port counter that the table doesn't know, or None if it can't be a name."""
    name = counter.lower()
    return _counter(f"heeler.network.{name}", "1") if _NAME.match(name) else None
