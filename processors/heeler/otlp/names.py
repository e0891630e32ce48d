"""What each column is called outside: one table, column to metric.

Names, units and instruments are those of the OpenTelemetry semantic conventions for hardware (``hw.*``) where
there is one, and ``heeler.*`` otherwise. The conventions count bytes through a GPU (``hw.gpu.io``); agents read
rates, and a total summed up from rates would be invented, so rates stay rates under our own name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
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
    },
    "min": {column: _gauge(f"{name}.min", unit, None, scale) for column, (name, unit, scale) in _EXTREMES.items()},
    "max": {column: _gauge(f"{name}.max", unit, None, scale) for column, (name, unit, scale) in _EXTREMES.items()},
    "last": {
        "energy_j": _counter("hw.energy", "J"),
        "power_limit_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "enforced"}),
        "power_limit_default_w": _gauge("heeler.gpu.power.limit", "W", {"heeler.limit": "default"}),
        "sm_clock_max_mhz": _gauge("heeler.gpu.clock.limit", "Hz", {"hw.limit_type": "max", **SM}, MHZ),
        "mem_clock_max_mhz": _gauge("heeler.gpu.clock.limit", "Hz", {"hw.limit_type": "max", **MEM}, MHZ),
        "temp_slowdown_c": _gauge("hw.temperature.limit", "Cel", {"hw.limit_type": "throttled", **CORE}),
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
        "pcie_gen": _state("heeler.gpu.pcie.generation"),
        "pcie_width": _state("heeler.gpu.pcie.width", "{lane}"),
        "pcie_gen_max": _state("heeler.gpu.pcie.generation.limit"),
        "pcie_width_max": _state("heeler.gpu.pcie.width.limit", "{lane}"),
        "pcie_replays": _counter("heeler.gpu.pcie.replays", "{replay}"),
        "nvlink_crc_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("crc")),
        "nvlink_replay_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("replay")),
        "nvlink_recovery_errors": _counter("heeler.gpu.nvlink.errors", "{error}", _error("recovery")),
        "nvlink_links_up": _state("heeler.gpu.nvlink.links_up", "{link}"),
        "clock_event_reasons": _state("heeler.gpu.clock.event_reasons"),
        "violation_thermal_ns": _counter("heeler.gpu.slowdown.time", "s", {"heeler.slowdown.cause": "thermal"}, NS),
        "violation_power_ns": _counter("heeler.gpu.slowdown.time", "s", {"heeler.slowdown.cause": "power"}, NS),
        "recovery_action": _state("heeler.gpu.recovery_action"),
        "pstate": _state("heeler.gpu.performance_state"),
        "persistence": _state("heeler.gpu.persistence_mode"),
    },
}

MEMORY_UTILIZATION: Final = _gauge("hw.gpu.memory.utilization", "1")
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
NETWORK_UP: Final = _level("hw.network.up", "1")
NETWORK_LIMIT: Final = Metric("hw.network.bandwidth.limit", "By/s", Kind.UPDOWN, scale=GBPS)

AGENT: Final[Mapping[str, Metric]] = {
    "dropped_samples": _counter("heeler.agent.dropped_samples", "{sample}"),
    "dropped_events": _counter("heeler.agent.dropped_events", "{event}"),
    "spool_events": _level("heeler.agent.spool.events", "{event}"),
    "spool_bytes": _level("heeler.agent.spool.size", "By"),
    "cpu_s": Metric("heeler.agent.cpu.time", "s", Kind.COUNTER),
    "rss_bytes": _level("heeler.agent.memory.usage", "By"),
    "clock_offset_ns": _gauge("heeler.agent.clock.offset", "s", None, NS),
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


def unlisted_counter(counter: str) -> Metric | None:
    """Return a metric for a port counter that the table doesn't know, or None if it can't be a name."""
    name = counter.lower()
    return _counter(f"heeler.network.{name}", "1") if _NAME.match(name) else None
