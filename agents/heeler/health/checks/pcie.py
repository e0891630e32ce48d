"""Checks of PCIe devices and Ethernet interfaces against the manifest, or against what the devices themselves can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.files import as_int, maybe, maybe_int, maybe_names, names_in
from heeler.health.checks.findings import Findings
from heeler.health.checks.manifest import each_of, first_number, manifest_facts
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_FOLDER = "sys/bus/pci/devices"
_UP = 0x1  # IFF_UP
_FLAG_BITS = {"UP": 0x1, "BROADCAST": 0x2, "LOOPBACK": 0x8, "RUNNING": 0x40, "PROMISC": 0x100, "MULTICAST": 0x1000}
# Classes of devices whose links matter: GPUs, adapters, drives, NVSwitches.
KINDS = {
    0x0300: "gpu",
    0x0302: "gpu",
    0x0200: "nic",
    0x0207: "nic",
    0x0108: "nvme",
    0x0680: "bridge",
    0x1200: "accelerator",
}
_NVIDIA = 0x10DE


@dataclass(frozen=True, slots=True)
class PciSettings:
    """PCIe links as the manifest has them; without one, as wide as each device can."""

    manifest: str = ""  # its path; the usual places otherwise
    judge_speed: str = "not_gpus"  # always, never, or not_gpus: an idle GPU lowers its speed to save power
    kinds: tuple[str, ...] = ("gpu", "nic", "nvme")  # without a manifest: which devices are looked at

    def validate(self) -> None:
        """Raise ConfigError for a word that does not exist."""
        if self.judge_speed not in ("always", "never", "not_gpus"):
            raise ConfigError(f"judge_speed: {self.judge_speed!r}: one of always, never, not_gpus")


@dataclass(frozen=True, slots=True)
class PcieErrorsSettings:
    """Errors that PCIe devices have counted since boot."""

    max_fatal: int = 0
    max_nonfatal: int = 0
    warn_corrected: int = 1000  # of one device


@dataclass(frozen=True, slots=True)
class EthlinkSettings:
    """Ethernet interfaces that should be up: these, or those of the manifest."""

    names: tuple[str, ...] = ()
    speed_mbps: int = 0  # at least; 0: the manifest's, or any
    mtu: int = 0  # exactly; 0: the manifest's, or any
    manifest: str = ""  # its path; the usual places otherwise


def read_pci(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/bus/pci/devices (class, link speed and width, AER counters), the manifest."""
    folder = context.root / _FOLDER
    paths = {one.manifest for one in asked if isinstance(one, PciSettings)}
    manifests = {path: manifest_facts(context, path) for path in paths}
    wanted = {address_of(each) for one in manifests.values() if one["found"] for each in one["found"]["pci"]}
    devices = {}
    for name in names_in(folder):
        code = maybe_int(folder / name / "class")
        kind = kind_of(code, maybe_int(folder / name / "vendor"))
        errors = {each: _aer(folder / name / f"aer_dev_{each}") for each in ("correctable", "nonfatal", "fatal")}
        if kind or name in wanted or any(value is not None for value in errors.values()):
            devices[name] = {"kind": kind, "errors": errors, **link_of(folder / name)}
    return {"devices": devices, "manifests": manifests, "gpus": gpus_by_address(context.root)}


def gpus_by_address(root: Path) -> dict[str, str]:
    """Return PCI address -> UUID, as NVIDIA's driver tells it without NVML; empty without that driver."""
    folder = root / "proc/driver/nvidia/gpus"
    found = {}
    try:
        names = maybe_names(folder) or []
    except ProbeError:
        return {}
    for name in names:
        for line in (maybe(folder / name / "information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "GPU UUID" and value.strip().startswith("GPU-") and "?" not in value:
                found[address_of(name)] = value.strip()
    return found


def kind_of(code: int | None, vendor: int | None) -> str:
    """Return what a device is, by its class; empty for what does not matter here."""
    kind = KINDS.get((code or 0) >> 8, "")
    if kind == "bridge":
        return "nvswitch" if vendor == _NVIDIA else ""
    return kind


def link_of(folder: Path) -> dict[str, Any]:
    """Return width, and speed in GT/s, of a device's link: now and at most."""
    return {
        "width": _width(folder / "current_link_width"),
        "max_width": _width(folder / "max_link_width"),
        "speed": first_number(maybe(folder / "current_link_speed")),
        "max_speed": first_number(maybe(folder / "max_link_speed")),
    }


def _width(path: Path) -> int | None:
    """Return lanes. A device that is gone reads as 63 or 255, one without a link as 0."""
    width = maybe_int(path)
    return width if width in (1, 2, 4, 8, 12, 16, 32) else None


def _aer(path: Path) -> int | None:
    """Return the sum of a device's counters: the last line has it, else the lines are added up."""
    text = maybe(path)
    if text is None:
        return None
    counts = {}
    for line in text.splitlines():
        name, _, number = line.rpartition(" ")
        value = as_int(number)
        if value is None:
            return None
        counts[name.strip()] = value
    total = next((value for name, value in counts.items() if name.startswith("TOTAL_ERR")), None)
    return total if total is not None else sum(counts.values()) if counts else None


def address_of(text: str) -> str:
    """Return an address as /sys has it: 0000:3b:00.0 of 00000000:3B:00.0, 3b:00.0 or PCI:0000:3b:00."""
    parts = text.strip().lower().removeprefix("pci:").split(":")
    try:
        domain = int(parts[0], 16) if len(parts) == 3 else 0
    except ValueError:
        return text
    rest = ":".join(parts[-2:])
    return f"{domain:04x}:{rest}" if "." in rest else f"{domain:04x}:{rest}.0"


def judge_pci(facts: Any, settings: PciSettings, _case: Case) -> Verdict:
    """Bad: a device of the manifest is missing, its link narrower or slower.

    Warn: without a manifest, a link is narrower than its device can. Unknown: nothing to look at can be read.
    """
    manifest, found = facts["manifests"][settings.manifest], Findings()
    if "error" in manifest:
        return unknown(f"the manifest can't be read: {manifest['error']}")
    wanted = manifest["found"]["pci"] if manifest["found"] else {}
    if wanted:
        for raw, says in wanted.items():
            _judge_wanted(address_of(raw), says, facts, settings, found)
        return found.verdict(f"{len(wanted)} devices of the manifest, links as there")
    mine = {name: one for name, one in facts["devices"].items() if one["kind"] in settings.kinds}
    links = {name: one for name, one in mine.items() if one["width"] and one["max_width"]}
    if not links:
        return unknown("no manifest, and no device with a link that can be read")
    for name, one in links.items():
        uuid = facts["gpus"].get(name)
        if one["width"] < one["max_width"]:
            shown = Evidence("link_width", one["width"], one["max_width"], pci=name, gpu_uuid=uuid)
            found.warn(f"{one['kind']} {name}: {one['width']} of {one['max_width']} lanes", shown)
    return found.verdict(f"{len(links)} links as wide as their devices can")


def _judge_wanted(
    name: str, says: Mapping[str, Any], facts: Mapping[str, Any], settings: PciSettings, found: Findings
) -> None:
    what = f"{says.get('type') or says.get('dev') or 'device'} {name}"
    one, uuid = facts["devices"].get(name), facts["gpus"].get(name)
    if one is None:
        found.bad(
            f"{what} is not there",
            Evidence("pci_device", None, pci=name, gpu_uuid=uuid, text=str(says.get("slot", "")) or None),
        )
        return
    width = first_number(says.get("link_width"))
    if width and one["width"] is None:
        found.unknown(
            f"{what}: the width of its link can't be read", Evidence("link_width", None, width, pci=name, gpu_uuid=uuid)
        )
    elif width and one["width"] < width:
        found.bad(
            f"{what}: {one['width']} of {width:g} lanes",
            Evidence("link_width", one["width"], width, pci=name, gpu_uuid=uuid),
        )
    speeds = [speed for each in each_of(says.get("link_speed")) if (speed := first_number(each))]
    if not speeds or settings.judge_speed == "never" or (settings.judge_speed == "not_gpus" and one["kind"] == "gpu"):
        return
    if one["speed"] is None:
        found.unknown(
            f"{what}: the speed of its link can't be read",
            Evidence("link_speed", None, min(speeds), pci=name, gpu_uuid=uuid),
        )
    elif one["speed"] < min(speeds):
        shown = Evidence("link_speed", one["speed"], min(speeds), "GT/s", pci=name, gpu_uuid=uuid)
        found.bad(f"{what}: {one['speed']:g} GT/s, not {min(speeds):g}", shown)


def judge_pcie_errors(facts: Any, settings: PcieErrorsSettings, _case: Case) -> Verdict:
    """Bad: a device counted fatal or other uncorrected errors. Warn: many corrected ones. Unknown: no counters."""
    found, told = Findings(), 0
    for name, one in facts["devices"].items():
        errors, uuid = one["errors"], facts["gpus"].get(name)
        told += any(value is not None for value in errors.values())
        for what, limit in (("fatal", settings.max_fatal), ("nonfatal", settings.max_nonfatal)):
            if errors[what] is not None and errors[what] > limit:
                shown = Evidence(f"pcie_{what}", errors[what], limit, pci=name, gpu_uuid=uuid)
                found.bad(f"{one['kind'] or 'device'} {name}: {errors[what]} {what} errors", shown)
        corrected = errors["correctable"]
        if corrected is not None and corrected >= settings.warn_corrected:
            shown = Evidence("pcie_corrected", corrected, settings.warn_corrected, pci=name, gpu_uuid=uuid)
            found.warn(f"{one['kind'] or 'device'} {name}: {corrected} corrected errors", shown)
    if not told:
        return unknown("no device has error counters (AER)")
    return found.verdict(f"{told} devices without errors beyond the limits")


def read_ethernet(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/class/net (operstate, carrier, speed, mtu, flags, address), the manifest."""
    paths = {one.manifest for one in asked if not one.names}
    manifests = {path: manifest_facts(context, path) for path in paths}
    folder = context.root / "sys/class/net"
    nets = {}
    for name in names_in(folder):
        speed = maybe_int(folder / name / "speed")  # fails for a link that is down, and is -1 where nobody knows
        nets[name] = {
            "operstate": maybe(folder / name / "operstate") or None,
            "speed": speed if speed is not None and speed > 0 else None,
            "mtu": maybe_int(folder / name / "mtu"),
            "flags": as_int(maybe(folder / name / "flags")),
            "mac": maybe(folder / name / "bonding_slave/perm_hwaddr") or maybe(folder / name / "address"),
        }
    return {"nets": nets, "manifests": manifests}


def judge_ethlink(facts: Any, settings: EthlinkSettings, _case: Case) -> Verdict:
    """Bad: an interface is not there or not up. Warn: it is slower, or has another MTU or address, than it should."""
    wanted: dict[str, Mapping[str, Any]] = {name: {} for name in settings.names}
    if not wanted:
        manifest = facts["manifests"][settings.manifest]
        if "error" in manifest:
            return unknown(f"the manifest can't be read: {manifest['error']}")
        says_all = manifest["found"]["eth"] if manifest["found"] else {}
        wanted = {str(says.get("netdev") or name): says for name, says in says_all.items()}
    if not wanted:
        return unknown("which interfaces there should be is not said")
    found = Findings()
    for name, says in wanted.items():
        _judge_interface(name, says, facts["nets"].get(name), settings, found)
    return found.verdict(f"{', '.join(wanted)}: up")


def _judge_interface(
    name: str, says: Mapping[str, Any], one: dict[str, Any] | None, settings: EthlinkSettings, found: Findings
) -> None:
    if one is None:
        found.bad(f"{name} is not there", Evidence("interface", None, device=name))
        return
    _judge_state(name, one, found)
    for flag in each_of(says.get("flags")):
        bit = _FLAG_BITS.get(str(flag).upper(), 0)
        if one["flags"] is not None and bit and not one["flags"] & bit:
            found.bad(f"{name}: the flag {flag} is not set", Evidence("flags", one["flags"], str(flag), device=name))
    speed, mtu = settings.speed_mbps or first_number(says.get("speed")), settings.mtu or first_number(says.get("mtu"))
    if speed and one["speed"] is None and one["operstate"] == "up":
        found.unknown(f"{name}: its speed can't be read", Evidence("speed", None, speed, "Mb/s", device=name))
    elif speed and one["speed"] is not None and one["speed"] < speed:
        shown = Evidence("speed", one["speed"], speed, "Mb/s", device=name)
        found.warn(f"{name}: {one['speed']} Mb/s, not {speed:g}", shown)
    if mtu and one["mtu"] != mtu:
        add = found.unknown if one["mtu"] is None else found.warn
        add(f"{name}: an MTU of {one['mtu'] or '?'}, not {mtu:g}", Evidence("mtu", one["mtu"], mtu, device=name))
    mac = str(says.get("mac") or "").lower()
    if mac and one["mac"] and one["mac"].lower() != mac:
        found.warn(f"{name}: address {one['mac']}, not {mac}", Evidence("mac", one["mac"], mac, device=name))


def _judge_state(name: str, one: Mapping[str, Any], found: Findings) -> None:
    state = one["operstate"]
    shown = Evidence("operstate", state, "up", device=name)
    if state is None:
        found.unknown(f"{name}: its state can't be read", shown)
    elif state == "unknown" and one["flags"] is not None and one["flags"] & _UP:
        return  # drivers that do not tell, as those of virtual machines
    elif state != "up":
        found.bad(f"{name} is {state}", shown)


PCI = Probe("pci", read_pci, timeout_s=5.0)
CHECKS = (
    Check(
        "pci",
        "PCIe devices are there, with links as wide and fast as they should be.",
        PCI,
        judge_pci,
        PciSettings,
        hardware=True,
    ),
    Check("pcie_errors", "PCIe devices count no errors.", PCI, judge_pcie_errors, PcieErrorsSettings, hardware=True),
    Check(
        "ethlink",
        "Ethernet interfaces are up, at their speed.",
        Probe("ethernet", read_ethernet, timeout_s=3.0),
        judge_ethlink,
        EthlinkSettings,
        needs_settings=True,
    ),
)
