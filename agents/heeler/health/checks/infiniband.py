"""Checks of InfiniBand and RoCE: adapters, ports, their counters, interfaces and firmware. All from /sys."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from heeler.health.checks.files import as_int, maybe, maybe_int, maybe_names, names_in
from heeler.health.checks.findings import Findings
from heeler.health.checks.manifest import each_of, first_number, manifest_facts, wanted_rdma_ports
from heeler.health.model import Case, Check, Context, Evidence, Outcome, Probe, ProbeError, Verdict, unknown

_CLASS = "sys/class/infiniband"
_INFINIBAND = 32  # ARPHRD_INFINIBAND of the kernel's net types

# The widths that the standard gives them: at its top a counter stands still, and tells nothing any more.
TOPS = {
    "symbol_error": 0xFFFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_rcv_switch_relay_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "VL15_dropped": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_xmit_constraint_errors": 0xFF,
    "port_rcv_constraint_errors": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}
_TOP = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class HcaCountSettings:
    """How many adapters there should be."""

    expected: int  # devices in /sys/class/infiniband
    devices: str = "*"  # a pattern for their names


@dataclass(frozen=True, slots=True)
class IbLinksSettings:
    """Ports that should be up. Without `ports` and `count` the manifest's interfaces are meant."""

    ports: tuple[str, ...] = ()  # mlx5_0, mlx5_0/1 or patterns as mlx5_*: all of them must be up; others may be down
    count: int | None = None  # so many ports must be up, whichever
    rate_gbps: float = 0.0  # at least; 0: the manifest's, or any
    layer: str = ""  # InfiniBand or Ethernet: only ports of that layer
    manifest: str = ""  # its path; the usual places otherwise


@dataclass(frozen=True, slots=True)
class IbCountersSettings:
    """Errors that ports have counted since their driver was loaded. Ports that are down are left out."""

    ports: tuple[str, ...] = ("*",)
    warn: dict[str, int] = field(
        default_factory=lambda: {
            "symbol_error": 1000,
            "link_downed": 10,
            "link_error_recovery": 10,
            "port_rcv_errors": 1000,
            "local_link_integrity_errors": 1,
            "excessive_buffer_overrun_errors": 1,
        }
    )
    bad: dict[str, int] = field(default_factory=dict)  # likewise


@dataclass(frozen=True, slots=True)
class IbPortErrorsSettings:
    """Errors that ports count while one looks: between two readings a second apart."""

    ports: tuple[str, ...] = ("*",)
    warn: dict[str, int] = field(
        default_factory=lambda: {"symbol_error": 1, "port_rcv_errors": 1, "local_link_integrity_errors": 1}
    )
    bad: dict[str, int] = field(
        default_factory=lambda: {
            "link_downed": 1,
            "link_error_recovery": 1,
            "symbol_error": 100,
            "port_rcv_errors": 100,
        }
    )


@dataclass(frozen=True, slots=True)
class IbInterfacesSettings:
    """Network interfaces over InfiniBand that should be up."""

    count: int = 8  # so many must be up, whichever
    names: tuple[str, ...] = ()  # these must be up; the count is then of no account


@dataclass(frozen=True, slots=True)
class IbFirmwareSettings:
    """Firmware of adapters."""

    versions: tuple[str, ...] = ()  # any of them; none: those of the manifest
    devices: str = "*"  # a pattern for names of adapters
    manifest: str = ""  # its path; the usual places otherwise


def read_infiniband(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/class/infiniband (state, rate, firmware, counters), /sys/class/net, the manifest."""
    paths = {one.manifest for one in asked if isinstance(one, IbLinksSettings | IbFirmwareSettings)}
    return {
        "devices": _devices(context.root),
        "nets": _nets(context.root),
        "manifests": {path: manifest_facts(context, path) for path in paths},
    }


def read_twice(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/class/infiniband/*/ports/*/counters, twice."""
    first = _devices(context.root)
    started = time.monotonic()
    time.sleep(min(1.0, context.timeout_s / 4))
    return {"before": first, "devices": _devices(context.root), "seconds": time.monotonic() - started}


def _devices(root: Path) -> dict[str, Any]:
    names = maybe_names(root / _CLASS)
    if names is None:
        names_in(root / "sys/class")  # without it nothing at all is known; with it there is no adapter
        return {}
    return {name: _device(root / _CLASS / name) for name in names}


def _device(folder: Path) -> dict[str, Any]:
    """Return what a device has. Some have no counters or no firmware, and one may go away while it is read."""
    try:
        ports = maybe_names(folder / "ports") or []
    except ProbeError:
        ports = []
    return {
        "firmware": maybe(folder / "fw_ver") or None,
        "board": maybe(folder / "board_id") or None,
        "ports": {port: _port(folder / "ports" / port) for port in ports if port.isdigit()},
    }


def _port(folder: Path) -> dict[str, Any]:
    return {
        "state": _after_colon(maybe(folder / "state")),
        "phys": _after_colon(maybe(folder / "phys_state")),
        "rate_gbps": first_number(maybe(folder / "rate")),
        "layer": maybe(folder / "link_layer") or None,
        "counters": _counters(folder / "counters"),
    }


def _counters(folder: Path) -> dict[str, int | None]:
    try:
        names = maybe_names(folder) or []
    except ProbeError:
        return {}
    # Some read as `N/A (no PMA)`.
    return {name: as_int(maybe(folder / name)) for name in names}


def _after_colon(text: str | None) -> str | None:
    """Return `ACTIVE` of `4: ACTIVE`."""
    return (text.partition(":")[2].strip() or text) if text else None


def _nets(root: Path) -> dict[str, str | None] | str:
    """Return interface over InfiniBand -> operstate; or why that can't be told."""
    folder = root / "sys/class/net"
    try:
        names = names_in(folder)
    except ProbeError as err:
        return str(err)
    return {
        name: maybe(folder / name / "operstate") for name in names if maybe_int(folder / name / "type") == _INFINIBAND
    }


def judge_hca_count(facts: Any, settings: HcaCountSettings, _case: Case) -> Verdict:
    """Bad: fewer adapters than there should be, or none. Warn: more."""
    found, names = Findings(), [name for name in facts["devices"] if fnmatchcase(name, settings.devices)]
    shown = Evidence("adapters", len(names), settings.expected, text=", ".join(names))
    if len(names) < settings.expected:
        found.bad(f"expected {settings.expected} adapters, found {len(names)}", shown)
    elif len(names) > settings.expected:
        found.warn(f"expected {settings.expected} adapters, found {len(names)}", shown)
    found.perf["adapters"] = len(names)
    return found.verdict(f"{len(names)} adapters")


@dataclass(frozen=True, slots=True)
class _Port:
    name: str  # mlx5_0/1
    outcome: Outcome
    why: str


def judge_ib_links(facts: Any, settings: IbLinksSettings, _case: Case) -> Verdict:
    """Bad: a port that should be up is down, too slow or not there. Warn: it waits for the subnet manager.

    Spare ports may be down. Unknown: nobody says what should be up, or a port's state can't be read.
    """
    manifest = facts["manifests"][settings.manifest]
    of_manifest = wanted_rdma_ports(manifest["found"])
    wanted = list(settings.ports)
    if not wanted and settings.count is None:
        if "error" in manifest:
            return unknown(f"the manifest can't be read: {manifest['error']}")
        wanted = list(of_manifest)
        if not wanted:
            return unknown("what should be up is not said: neither ports nor count, and no manifest")
    common = first_number(((manifest["found"] or {}).get("ib") or {}).get("link_rate")) or 0.0
    graded = []
    for device, one in facts["devices"].items():
        for number, port in one["ports"].items():
            if not settings.layer or (port["layer"] or "").lower() == settings.layer.lower():
                name = f"{device}/{number}"
                rate = settings.rate_gbps or of_manifest.get(name) or of_manifest.get(device) or common
                graded.append(_graded(name, port, rate))
    found = Findings()
    found.perf |= {"ports_up": sum(one.outcome is Outcome.OK for one in graded), "ports": len(graded)}
    if settings.count is not None:
        _count_ports(graded, settings.count, found)
    for pattern in wanted:
        _want_ports(graded, pattern, facts["devices"], found)
    up = [one.name for one in graded if one.outcome is Outcome.OK]
    return found.verdict(f"{len(up)} ports are up", Evidence("ports_up", len(up), settings.count, text=", ".join(up)))


def _graded(name: str, port: dict[str, Any], rate: float) -> _Port:
    state, phys, have = port["state"], port["phys"], port["rate_gbps"]
    if state is None or phys is None:
        return _Port(name, Outcome.UNKNOWN, f"{name}: its state can't be read")
    if phys != "LinkUp" or state not in ("ACTIVE", "ARMED", "INIT", "ACTIVE_DEFER"):
        return _Port(name, Outcome.BAD, f"{name}: {state}, {phys}")
    if state != "ACTIVE":
        return _Port(name, Outcome.WARN, f"{name}: {state}, waits for the subnet manager")
    if rate and have is None:
        return _Port(name, Outcome.UNKNOWN, f"{name}: its rate can't be read")
    if rate and have is not None and have < rate:
        return _Port(name, Outcome.BAD, f"{name}: {have:g} Gb/s, not {rate:g}")
    return _Port(name, Outcome.OK, f"{name}: {state}")


def _count_ports(graded: list[_Port], count: int, found: Findings) -> None:
    up = [one for one in graded if one.outcome is Outcome.OK]
    if len(up) >= count:
        return
    rest = [one for one in graded if one.outcome is not Outcome.OK]
    said = f"expected {count} ports up, found {len(up)}"
    shown = Evidence("ports_up", len(up), count, text="; ".join(one.why for one in rest)[:500] or None)
    maybe_up = [one for one in rest if one.outcome is Outcome.UNKNOWN]
    waiting = [one for one in rest if one.outcome is Outcome.WARN]
    if len(up) + len(maybe_up) + len(waiting) < count:
        found.bad(f"{said} ({', '.join(one.why for one in rest[:4]) or 'no others'})", shown)
    elif maybe_up:
        found.unknown(f"{said}; {maybe_up[0].why}", shown)
    else:
        found.warn(f"{said}; {waiting[0].why}", shown)


def _matches(port: str, pattern: str) -> bool:
    return fnmatchcase(port, pattern) or ("/" not in pattern and fnmatchcase(port.partition("/")[0], pattern))


def _want_ports(graded: list[_Port], pattern: str, devices: dict[str, Any], found: Findings) -> None:
    mine = [one for one in graded if _matches(one.name, pattern)]
    if not mine:
        # A device that is listed, but whose ports could not be, went away while it was read.
        gone = [
            name for name, one in devices.items() if fnmatchcase(name, pattern.partition("/")[0]) and not one["ports"]
        ]
        if gone:
            found.unknown(f"{gone[0]}: its ports can't be read", Evidence("port", None, device=gone[0]))
        else:
            found.bad(f"{pattern} is not there ({len(graded)} ports found)", Evidence("port", None, device=pattern))
    for one in mine:
        add = {Outcome.BAD: found.bad, Outcome.WARN: found.warn, Outcome.UNKNOWN: found.unknown}.get(one.outcome)
        if add:
            add(one.why, Evidence("port", one.why.partition(": ")[2], device=one.name))


def judge_ib_counters(facts: Any, settings: IbCountersSettings, _case: Case) -> Verdict:
    """Bad or warn: more errors than the limits. Unknown: a counter stands at its top, or none of them is there."""
    found = Findings()
    ports = _live_ports(facts["devices"], settings.ports)
    for name, port in ports:
        known = [(each, port["counters"].get(each)) for each in {**settings.warn, **settings.bad}]
        if all(value is None for _, value in known):
            found.unknown(f"{name}: none of its counters can be read", Evidence("counters", 0, device=name))
        for counter, value in known:
            _judge_counter(f"{name} {counter}", value, settings.warn.get(counter), settings.bad.get(counter), found)
    if not ports:
        return unknown("no port that is up, so no counter was read")
    return found.verdict(f"{len(ports)} ports without errors beyond the limits")


def _judge_counter(name: str, value: int | None, warn: int | None, bad: int | None, found: Findings) -> None:
    port, _, counter = name.partition(" ")
    if value is None:
        return
    shown = Evidence(counter, value, bad or warn, device=port)
    if value in (TOPS.get(counter, _TOP), _TOP):
        found.unknown(f"{name}: at its top ({value}), what it counts now can't be told", shown)
    elif bad is not None and value >= bad:
        found.bad(f"{name}: {value}", shown)
    elif warn is not None and value >= warn:
        found.warn(f"{name}: {value}", shown)


def _live_ports(devices: dict[str, Any], patterns: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for device, one in devices.items():
        for number, port in one["ports"].items():
            name = f"{device}/{number}"
            if any(_matches(name, pattern) for pattern in patterns) and port["phys"] in ("LinkUp", None):
                found.append((name, port))
    return found


def judge_ib_port_errors(facts: Any, settings: IbPortErrorsSettings, _case: Case) -> Verdict:
    """Bad or warn: a port counts errors now. Unknown: a counter stands at its top, was reset, or none is there."""
    found = Findings()
    ports = _live_ports(facts["devices"], settings.ports)
    for name, port in ports:
        device, _, number = name.partition("/")
        before = facts["before"].get(device, {"ports": {}})["ports"].get(number, {"counters": {}})["counters"]
        known = {each: (before.get(each), port["counters"].get(each)) for each in {**settings.warn, **settings.bad}}
        if all(None in pair for pair in known.values()):
            found.unknown(f"{name}: none of its counters can be read", Evidence("counters", 0, device=name))
        for counter, (first, last) in known.items():
            if first is None or last is None:
                continue
            if first == last and last in (TOPS.get(counter, _TOP), _TOP):
                shown = Evidence(counter, last, device=name)
                found.unknown(f"{name} {counter}: at its top ({last}), what it counts now can't be told", shown)
            elif last < first:
                found.unknown(f"{name} {counter}: reset between two readings", Evidence(counter, last, device=name))
            else:
                _judge_growth(name, counter, last - first, settings, found)
    if not ports:
        return unknown("no port that is up, so no counter was read")
    return found.verdict(f"{len(ports)} ports counted no errors in {facts['seconds']:.1f} s")


def _judge_growth(name: str, counter: str, growth: int, settings: IbPortErrorsSettings, found: Findings) -> None:
    bad, warn = settings.bad.get(counter), settings.warn.get(counter)
    if bad is not None and growth >= bad:
        found.bad(f"{name} {counter}: {growth} more", Evidence(counter, growth, bad, device=name))
    elif warn is not None and growth >= warn:
        found.warn(f"{name} {counter}: {growth} more", Evidence(counter, growth, warn, device=name))


def judge_ib_interfaces(facts: Any, settings: IbInterfacesSettings, _case: Case) -> Verdict:
    """Bad: fewer interfaces over InfiniBand are up than should be."""
    nets, found = facts["nets"], Findings()
    if isinstance(nets, str):
        return unknown(f"interfaces can't be read: {nets}")
    up = sorted(name for name, state in nets.items() if state == "up")
    unread = [name for name, state in nets.items() if state is None]
    down = {name: state for name, state in nets.items() if state not in ("up", None)}
    shown = Evidence(
        "interfaces_up", len(up), settings.count, text=", ".join(f"{k}: {v}" for k, v in down.items()) or None
    )
    for name in settings.names:
        if name not in nets:
            found.bad(f"{name} is not there", Evidence("operstate", None, "up", device=name))
        elif nets[name] is None:
            found.unknown(f"{name}: its state can't be read", Evidence("operstate", None, "up", device=name))
        elif nets[name] != "up":
            found.bad(f"{name} is {nets[name]}", Evidence("operstate", nets[name], "up", device=name))
    if not settings.names and len(up) < settings.count:
        said = f"expected {settings.count} interfaces up, found {len(up)} of {len(nets)}"
        (found.unknown if len(up) + len(unread) >= settings.count else found.bad)(said, shown)
    found.perf["interfaces_up"] = len(up)
    return found.verdict(f"{len(up)} interfaces are up")


def judge_ib_firmware(facts: Any, settings: IbFirmwareSettings, _case: Case) -> Verdict:
    """Warn: an adapter has other firmware than it should. Unknown: nobody says which, or none can be read."""
    manifest = facts["manifests"][settings.manifest]
    wanted = list(settings.versions)
    if not wanted:
        if "error" in manifest:
            return unknown(f"the manifest can't be read: {manifest['error']}")
        ib = (manifest["found"] or {}).get("ib") or {}
        wanted = [str(each) for each in each_of(ib.get("firmware_version"))]
    if not wanted:
        return unknown("which firmware there should be is not said")
    mine = {name.partition("/")[0] for name in wanted_rdma_ports(manifest["found"])}
    versions = {
        name: one["firmware"]
        for name, one in facts["devices"].items()
        if fnmatchcase(name, settings.devices) and (settings.versions or not mine or name in mine)
    }
    if not any(versions.values()):
        return unknown("no adapter tells its firmware")
    found = Findings()
    for name, version in versions.items():
        shown = Evidence("firmware", version, " or ".join(wanted), device=name)
        if version is None:
            found.unknown(f"{name}: its firmware can't be read", shown)
        elif version not in wanted:
            found.warn(f"{name}: firmware {version}, not {' or '.join(wanted)}", shown)
    return found.verdict(f"{len(versions)} adapters: {', '.join(sorted({v for v in versions.values() if v}))}")


INFINIBAND = Probe("infiniband", read_infiniband, timeout_s=5.0)
LINK_HOLD_S = 240.0  # links train again by themselves; as long as detection waits with its advice
CHECKS = (
    Check(
        "hca_count",
        "As many InfiniBand or RoCE adapters as there should be.",
        INFINIBAND,
        judge_hca_count,
        HcaCountSettings,
        hardware=True,
        needs_settings=True,
    ),
    Check(
        "ib_links",
        "InfiniBand and RoCE ports are up, at their rate.",
        INFINIBAND,
        judge_ib_links,
        IbLinksSettings,
        hardware=True,
        needs_settings=True,
        hold_s=LINK_HOLD_S,
    ),
    Check(
        "ib_counters",
        "Ports have counted few errors.",
        INFINIBAND,
        judge_ib_counters,
        IbCountersSettings,
        hardware=True,
    ),
    Check(
        "ib_port_errors",
        "Ports count no errors now.",
        Probe("infiniband_twice", read_twice, timeout_s=6.0),
        judge_ib_port_errors,
        IbPortErrorsSettings,
        hardware=True,
    ),
    Check(
        "ib_interfaces",
        "Network interfaces over InfiniBand are up.",
        INFINIBAND,
        judge_ib_interfaces,
        IbInterfacesSettings,
        needs_settings=True,
        hold_s=LINK_HOLD_S,
    ),
    Check(
        "ib_firmware",
        "Adapters have the wanted firmware.",
        INFINIBAND,
        judge_ib_firmware,
        IbFirmwareSettings,
        needs_settings=True,
    ),
)
