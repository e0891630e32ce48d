"""What the readings of a node and of its NVSwitches are called outside.

Names are those of the semantic conventions for systems (``system.*``) where there is one. Load averages are named as
the OpenTelemetry Collector's host receiver names them. Pressure has no agreed name yet, so it is ours.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from heeler.otlp.names import MHZ, NS, RX, TX, Kind, Metric

# Key of a HostSample -> metric.
HOST: Final[Mapping[str, Metric]] = {
    "cpus": Metric("system.cpu.logical.count", "{cpu}", Kind.UPDOWN, integer=True),
    "load1": Metric("system.cpu.load_average.1m", "{thread}"),
    "load5": Metric("system.cpu.load_average.5m", "{thread}"),
    "load15": Metric("system.cpu.load_average.15m", "{thread}"),
    # Threads that wait for a disk are in uninterruptible sleep as well: these don't add up.
    "procs_running": Metric("heeler.host.threads.running", "{thread}", integer=True),
    "procs_blocked": Metric("heeler.host.threads.blocked", "{thread}", integer=True),
    "threads_uninterruptible": Metric("heeler.host.threads.uninterruptible", "{thread}", integer=True),
}


def _mode(name: str) -> Metric:
    return Metric("system.cpu.utilization", "1", attributes=(("cpu.mode", name),))


# Time of guests is in that of user already.
CPU: Final[Mapping[str, Metric]] = {
    **{mode: _mode(mode) for mode in ("user", "nice", "system", "idle", "iowait", "softirq", "steal")},
    "irq": _mode("interrupt"),
    "guest": Metric("heeler.host.cpu.guest", "1"),
}


def _bytes(name: str, *attributes: tuple[str, str]) -> Metric:
    return Metric(name, "By", Kind.UPDOWN, attributes, integer=True)


def _memory(state: str) -> Metric:
    return _bytes("system.memory.usage", ("system.memory.state", state))


def _swap(state: str) -> Metric:
    return _bytes("system.paging.usage", ("system.paging.state", state))


MEMORY: Final[Mapping[str, Metric]] = {
    "total": _bytes("system.memory.limit"),
    "available": _bytes("system.memory.linux.available"),
    "free": _memory("free"),
    "buffers": _memory("buffers"),
    "cached": _memory("cached"),
    "swap_total": _bytes("heeler.host.swap.limit"),
    "swap_free": _swap("free"),
    "slab_unreclaimable": _bytes("system.memory.linux.slab.usage", ("system.memory.linux.slab.state", "unreclaimable")),
    "dirty": _bytes("heeler.host.memory.dirty"),
    "writeback": _bytes("heeler.host.memory.writeback"),
    "hugepages_total": _bytes("heeler.host.hugepages.limit"),
    "hugepages_free": _bytes("heeler.host.hugepages.free"),
}
MEMORY_USED: Final = _memory("used")
SWAP_USED: Final = _swap("used")

_WINDOWS = {"avg10_ratio": "10s", "avg60_ratio": "60s", "avg300_ratio": "300s"}

# Severity of a PCIe device's errors, and what they are; the second says again what the first has counted.
AER: Final[Mapping[str, Metric]] = {
    severity: Metric("heeler.pcie.errors", "{error}", Kind.COUNTER, (("error.type", severity),), integer=True)
    for severity in ("correctable", "nonfatal", "fatal")
}
AER_KIND: Final = Metric("heeler.pcie.errors.kind", "{error}", Kind.COUNTER, integer=True)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


@lru_cache(maxsize=1024)
def pressure(key: str, value: str) -> Metric | None:
    """Return the metric of one number of pressure stall information, or None for one that is not known."""
    resource, _, stall = key.rpartition("_")
    if resource not in ("cpu", "memory", "io", "irq") or stall not in ("some", "full"):
        return None
    about = (("heeler.pressure.resource", resource), ("heeler.pressure.stall", stall))
    if value == "total_s":
        return Metric("heeler.host.pressure.time", "s", Kind.COUNTER, about)
    if value not in _WINDOWS:
        return None
    return Metric("heeler.host.pressure", "1", attributes=(*about, ("heeler.window", _WINDOWS[value])))


@lru_cache(maxsize=1024)
def memory(name: str) -> Metric | None:
    """Return the metric of a kind of memory; one of a newer agent under its own name."""
    known = MEMORY.get(name)
    if known is None and _NAME.match(name):
        return _bytes(f"heeler.host.memory.{name}")
    return known


_DIRECTIONS = (("tx_", TX), ("rx_", RX))
_SUFFIXES = (
    ("_bytes_per_s", "By/s", None, False),
    ("_bytes", "By", None, True),
    ("_errors", "{error}", None, True),
    ("_packets", "{packet}", None, True),
    ("_replays", "{replay}", None, True),
    ("_recoveries", "{recovery}", None, True),
    ("_mhz", "Hz", MHZ, False),
    ("_ratio", "1", None, False),
    ("_ns", "s", NS, False),
    ("_mv", "V", 1e-3, False),
    ("_ma", "A", 1e-3, False),
    ("_v", "V", None, False),
    ("_w", "W", None, False),
    ("_c", "Cel", None, False),
)


@lru_cache(maxsize=1024)
def switch(name: str, *, link: bool) -> Metric | None:
    """Return the metric of a switch's value or of one of its links, or None if it can't be a name.

    DCGM has many fields and they change, so the unit is read from the name, and what counts is taken to grow only.
    """
    if not _NAME.match(name):
        return None
    prefix = "heeler.nvswitch.link." if link else "heeler.nvswitch."
    tags = next((tags for start, tags in _DIRECTIONS if name.startswith(start)), {})
    short = name[3:] if tags else name
    for suffix, unit, scale, counts in _SUFFIXES:
        stem, word = short.removesuffix(suffix), suffix[1:]
        if short == word:  # as in tx_bytes_per_s
            return _made(prefix + ("throughput" if unit == "By/s" else word), unit, tags, scale, counts=counts)
        if stem in ("", short):
            continue
        if unit == "{error}":
            return _made(f"{prefix}errors", unit, {"error.type": stem, **tags}, None, counts=True)
        return _made(f"{prefix}{stem}.{word}" if counts else prefix + stem, unit, tags, scale, counts=counts)
    return _made(prefix + short, "1", tags, None, counts=False)


def _made(name: str, unit: str, tags: Mapping[str, str], scale: float | None, *, counts: bool) -> Metric:
    kind = Kind.COUNTER if counts else Kind.GAUGE
    return Metric(name, unit, kind, tuple(tags.items()), scale, integer=counts)
